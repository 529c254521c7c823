// Negative controls: mutants of the converted model, and wrong relations, each of which the check
// must detect.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "onnxio/model/model.h"
#include "verify/controls/self_checks.h"
#include "verify/report/pace.h"
#include "verify/report/verify_report.h"
#include "verify/steps/drive.h"

namespace kvlift {

struct ControlOptions {
  const Graph* source = nullptr;  // never null
  int threads = 0;                // 0: as many as the machine has
  // Why all sequences of a batch have one length in every step; empty: in some step they differ.
  std::string one_length;
  std::string last_slot;     // why no step writes the last slot; empty: a step does
  std::string last_start;    // why no step begins in the last slot; empty: a step may
  bool many_tokens = false;  // some step has more than one new token
  bool pads = false;         // some step has left padding
  bool everywhere = false;   // mutants of every layer, not of the last one only
  // A mutant whose changed nodes, with all that depends on them, are at most this share of the
  // model's nodes (0 to 1) is run without the other nodes (mutant_cone.h).
  double most_affected = 0.5;
  std::string unrefused;  // why a step outside the capacity is not refused; empty: it is refused
  bool proved = false;    // every fact of the proof holds
  Assumptions* ledger = nullptr;  // receives the observations that excuse a mutant; never null
  Pace* pace = nullptr;           // is notified of each mutant that begins; never null
  // Runs steps outside the capacity on a mutant; the check fails if the mutant does not refuse.
  std::function<SelfCheck(const Model& mutant)> overflow;
  // Judges the two models with another relation: returns why they are not equal, empty if they are.
  std::function<std::string(const Manifest& relation)> judge;
};

// Runs all mutants against the records of the source, and judges all wrong relations. Returns one
// result for each. A mutant that removes one of several conditions that hide the same keys
// (Mutant::guard) also counts as detected if the model without all of them is detected; it is left
// out if even that is not detected and no step hides a key.
std::vector<ControlResult> RunControls(const Driver& driver, const Model& model, const Graph& after,
                                       const Manifest& relation, const std::vector<Record>& records,
                                       const ControlOptions& options);

}  // namespace kvlift
