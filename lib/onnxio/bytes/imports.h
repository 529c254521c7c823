// Which versions of operator sets a model imports.
#pragma once

#include "absl/status/status.h"
#include "onnx/onnx_pb.h"

namespace kvlift {

// Removes imports that stand twice in the model or in one of its functions. Returns InvalidArgument
// (KV023) if one of them imports a domain in two versions: tools and runtimes take the first, the
// last or the highest. The domain "ai.onnx" is the default domain.
absl::Status UniteImports(onnx::ModelProto* model);

}  // namespace kvlift
