// Makes the opset imports of a model unique.
#pragma once

#include "absl/status/status.h"
#include "onnx/onnx_pb.h"

namespace kvlift {

// Removes repeated opset imports of the model and of each of its functions. Returns InvalidArgument
// (KV023) if the model or a function imports a domain in two versions, because tools and runtimes
// disagree about which one counts (the first, the last or the highest). The domain "ai.onnx" is the
// default domain.
absl::Status UniteImports(onnx::ModelProto* model);

}  // namespace kvlift
