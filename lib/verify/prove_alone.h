// The proof of a conversion without any plan: milliseconds, and no weights are read.
#pragma once

#include "absl/status/statusor.h"
#include "contract/manifest.h"
#include "onnxio/model.h"
#include "proof/proof.h"

namespace kvlift {

// Sources without an axis of sequences, caches with joined axes and quantised caches are brought to
// the plain form first, as Verify brings them there. What has none is not tried.
absl::StatusOr<Proof> ProveAlone(const Model& before, const Model& after, const Manifest& relation);

}  // namespace kvlift
