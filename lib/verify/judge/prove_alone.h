// The proof of a conversion without running any plan. It takes milliseconds and reads no weights.
#pragma once

#include "absl/status/statusor.h"
#include "contract/manifest.h"
#include "onnxio/model/model.h"
#include "proof/graphs/proof.h"

namespace kvlift {

// Proves what Verify proves. Sources without a batch axis, layouts with groups and quantised caches
// are rewritten first, as Verify does it; where that fails, Proof::not_tried says why. Returns no
// error.
absl::StatusOr<Proof> ProveAlone(const Model& before, const Model& after, const Manifest& relation);

}  // namespace kvlift
