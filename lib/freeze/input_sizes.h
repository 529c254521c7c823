// Gives the inputs of a converted model the sizes that a user asks for.
#pragma once

#include <optional>

#include "absl/status/statusor.h"
#include "base/findings.h"
#include "contract/manifest.h"
#include "freeze/request.h"
#include "onnx/onnx_pb.h"

namespace kvlift {

// Replaces each symbolic dimension of the model's inputs by its number, and enters the numbers in
// the manifest. B and S are read from the control inputs and from what TensorScatter writes, not
// from names. Returns a finding (KV260) if the sizes do not fit: a dimension has no number, a name
// is not that of a dimension, the model declares another number, or the caches have too few slots
// for the tokens. Returns nullopt if they fit. Fails as Graph::Build.
absl::StatusOr<std::optional<Finding>> SetInputSizes(const FreezeSizes& sizes,
                                                     onnx::ModelProto* model, Manifest* manifest);

}  // namespace kvlift
