// Whether outputs depend on every token and every slot of a cache that holds one: a comparison that
// a wrong value would not move says nothing.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "verify/drive.h"
#include "verify/plans.h"
#include "verify/verify.h"

namespace kvlift {

struct Sensitivity {
  int sampled = 0, felt = 0;
  double least = 0;  // smallest change of what was felt, as a multiple of one that is
  std::vector<std::string> unseen;  // what changes nothing in the source, however it is changed
  // What changes outputs by less than a hundred bounds of rounding, five in half types.
  std::vector<std::string> weak;
  std::optional<Counterexample> difference;  // both models changed, and not alike
};

// Changes one slot of one sequence's cache, or one token, in both models' feeds.
Sensitivity SampleSensitivity(const Driver& driver, Runner& source, Runner& converted,
                              const Manifest& relation, const PlanLimits& limits, int source_nodes);

}  // namespace kvlift
