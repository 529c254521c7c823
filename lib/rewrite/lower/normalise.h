// Turns a model into an equivalent one whose caches are in the main graph and written by standard
// operators. Runs before caches are searched.
#pragma once

#include "absl/status/statusor.h"
#include "onnx/onnx_pb.h"
#include "rewrite/types/normalised.h"

namespace kvlift {

// Needs a model with kTargetOpset (rewrite/lower/opset.h) and without model-local functions. What
// cannot be normalised is left as it is, with a refusal.
absl::StatusOr<Normalised> Normalise(onnx::ModelProto model, UnreadMasks unread);

}  // namespace kvlift
