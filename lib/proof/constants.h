// Constants of two models by their bytes: one name for what both hold, wherever each has it.
#pragma once

#include "onnx/onnx_pb.h"

namespace kvlift {

// Constant nodes become initializers, in both models; initializers of the result get the names of
// the source's that hold the same bytes in the same type and shape. Models with bodies stay as they
// are.
void ShareConstants(onnx::ModelProto* source, onnx::ModelProto* result);

}  // namespace kvlift
