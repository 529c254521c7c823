// The verdict on two whole models in the types that they have: they are neither cut into layers nor
// lifted to float32 here.
#pragma once

#include <map>
#include <string>

#include "absl/status/statusor.h"
#include "contract/manifest.h"
#include "onnxio/model/model.h"
#include "verify/judge/verify.h"
#include "verify/record/quantized_rows.h"
#include "verify/record/recorder.h"
#include "verify/variants/lifted_types.h"

namespace kvlift {

// The part of the verdict that the caller asks for; by default all of it.
struct VerifyPart {
  // If set, only the plans are run, and outputs are compared within the bounds that the oracle
  // computes for this model, in which the rounding of cache rows is an error of a known size.
  const Model* bounds = nullptr;
  // Samples whether outputs depend on each slot and token (sensitivity.h).
  bool sensitivity = true;
  // The source is known to read slots that hold no token.
  bool reads_unused = false;
  // The proof of these two models; null: it is made here if the options ask for it.
  const Proof* proof = nullptr;
  // If set, only the plans are run, to see whether both models of half precision agree in their own
  // types; the source in float32 is made of these weights.
  const LiftedWeights* agreement = nullptr;
  // If set, only the plans are run, and the recorder writes down their steps.
  Recorder* recorder = nullptr;
  // How the model that is recorded stores the rows of its caches, by input, if `bounds` is set.
  std::map<std::string, RowStorage> stored;
};

// Proves what can be proved, then runs the plans, self checks, sensitivity samples and mutants that
// options and part ask for. The relation must have no quantised caches and no layouts with groups,
// and every source cache must have a batch axis. The only errors are those of Graph::Build; all
// else that goes wrong is a verdict with a KV code.
absl::StatusOr<VerifyReport> JudgePair(const Model& before, const Model& after,
                                       const Manifest& relation, const VerifyOptions& options,
                                       const VerifyPart& part = {});

}  // namespace kvlift
