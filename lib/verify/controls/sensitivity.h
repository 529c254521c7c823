// Samples whether outputs depend on each new token and on each slot of a cache that holds a token.
// A comparison says nothing about a value that the outputs do not depend on.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "verify/report/verify_report.h"
#include "verify/steps/drive.h"
#include "verify/steps/plans.h"

namespace kvlift {

// A change of outputs is detected if it exceeds 100 times the fixed bound (compare.h), in half
// types 5 times. Slots and tokens are given as texts, "slot 4 of cache 0.key, sequence 1,".
struct Sensitivity {
  int sampled = 0, detected = 0;  // slots and tokens changed; those whose change was detected
  double least = 0;               // the smallest detected change, in multiples of that threshold
  // Slots and tokens whose change moves no output of the source at all.
  std::vector<std::string> without_effect;
  // Slots and tokens whose change moves outputs by less than the threshold.
  std::vector<std::string> weak;
  std::optional<Counterexample> difference;  // where the two models react differently
  // The oracle finds that rounding errors may change a decision behind `difference`.
  bool undecided = false;
};

// Changes one slot of one sequence's cache, or one token, in the feeds of both models, for a sample
// of caches and all new tokens of one sequence. Nothing is sampled if no step has a past.
// bounds: computes bounds where the models differ by more than the fixed one; may be null.
Sensitivity SampleSensitivity(const Driver& driver, ErrorBounds* bounds, Runner& source,
                              Runner& converted, const Manifest& relation, const PlanLimits& limits,
                              int source_nodes);

}  // namespace kvlift
