// Runs the mutants of a converted model against what the source gave.
#pragma once

#include <string>
#include <vector>

#include "verify/drive.h"
#include "verify/verify.h"

namespace kvlift {

struct ControlOptions {
  std::string base_dir;  // of the converted model's external data
  int threads = 0;
  bool ragged = false;       // lengths differ between sequences in some plan
  bool many_tokens = false;  // some step has more than one new token
  bool pads = false;         // some step has pads in front
};

// One result for each mutant that could show. What takes away one of several things that hide the
// same keys shows only with the others gone.
std::vector<ControlResult> RunControls(const Driver& driver, const Graph& after,
                                       const Manifest& relation, const std::vector<Record>& records,
                                       const ControlOptions& options);

}  // namespace kvlift
