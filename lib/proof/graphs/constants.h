// Gives equal constants of two models one name.
#pragma once

#include "onnx/onnx_pb.h"

namespace kvlift {

// Turns Constant nodes into initializers in both models. Then renames each initializer of `result`
// to the name of the source's initializer with the same bytes, type and shape, if there is one.
// Models with subgraphs stay as they are.
void ShareConstants(onnx::ModelProto* source, onnx::ModelProto* result);

}  // namespace kvlift
