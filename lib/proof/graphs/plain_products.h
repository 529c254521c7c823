// Spells out what ONNX Runtime's FusedMatMul does beside its product.
#pragma once

#include "onnx/onnx_pb.h"

namespace kvlift {

// Returns the model with a Transpose in front of each FusedMatMul for each operand that it
// transposes, and with MatMul in place of those that only multiply, so that they equal the nodes
// that they were fused from. A node whose operands have unknown ranks stays as it is. Models
// without such nodes, and those that Graph::Build refuses, are returned unchanged.
onnx::ModelProto WithPlainProducts(onnx::ModelProto model);

}  // namespace kvlift
