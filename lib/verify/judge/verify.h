// Judges whether a converted model computes what its source computes: proves it for all shapes
// where it can, and runs both models step by step, each step with the caches that the last one
// left. Knows the two models and the relation of the manifest only, nothing of the rewrite rules.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "contract/manifest.h"
#include "onnxio/model/model.h"
#include "verify/report/compare.h"
#include "verify/report/verify_report.h"

namespace kvlift {

class Recorder;  // verify/record/recorder.h

struct VerifyOptions {
  bool full = false;  // more plans and mutants, a larger budget for the oracle, no cut into layers
  uint64_t seed = 1;  // of all values that are fed
  int threads = 0;    // 0: as many as the machine has
  bool controls = true;  // run the mutants
  bool proof = true;     // prove what can be proved for all shapes
  bool source = false;   // compare the relation's digest of its source with the source's file
  bool whole = false;    // run whole models even if they can be cut into layers
  // If set, weights in files are replaced by numbers drawn with this seed (drawn_weights.h).
  std::optional<uint64_t> random_weights = std::nullopt;
  // Receives a line of progress before each part that may take long; may be null.
  std::function<void(std::string)> say = nullptr;
  CompareFn compare = nullptr;  // replaces Compare in tests; null: Compare
};

// Judges the two models. The only errors are those of Graph::Build, for a graph that cannot be
// indexed; an operator without a kernel, too little memory, a relation that does not fit or an
// undetected mutant make the verdict inconclusive.
absl::StatusOr<VerifyReport> Verify(const Model& before, const Model& after,
                                    const Manifest& relation, const VerifyOptions& options);

// Makes the proof and runs the plans, but no mutants and no other checks; the recorder writes the
// steps down. Returns what plans and proof show. The models are run whole, in their own types.
// Errors are those of Verify.
absl::StatusOr<VerifyReport> RecordPlans(const Model& before, const Model& after,
                                         const Manifest& relation, const VerifyOptions& options,
                                         Recorder* recorder);

}  // namespace kvlift
