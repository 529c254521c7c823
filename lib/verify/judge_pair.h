// The verdict on two models as they are: neither cut into layers nor computed in other types.
#pragma once

#include "absl/status/statusor.h"
#include "contract/manifest.h"
#include "onnxio/model.h"
#include "verify/lifted_types.h"
#include "verify/verify.h"

namespace kvlift {

// What of the verdict is asked for.
struct VerifyPart {
  // The second model's rows are rounded, and this says of which size its errors are: only whether
  // outputs lie within them is judged.
  const Model* bounds = nullptr;
  // Whether outputs tell what slots and tokens hold.
  bool sensitivity = true;
  // The first model is known to read slots that hold no token.
  bool reads_unused = false;
  // What is proved of these models, if it is known.
  const Proof* proof = nullptr;
  // Only the plans are run: whether both models of half precision agree in their own types. The
  // weights are those of the models in float32. Null: all is judged.
  const LiftedWeights* agreement = nullptr;
};

// Proves what can be proved, then runs the plans, checks, samples and mutants that the options and
// the part ask for. Caches are not quantised, and the relation names the axis of sequences.
absl::StatusOr<VerifyReport> JudgePair(const Model& before, const Model& after,
                                       const Manifest& relation, const VerifyOptions& options,
                                       const VerifyPart& part = {});

}  // namespace kvlift
