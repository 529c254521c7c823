// Structural comparison of two models.
#pragma once

#include <string>

#include "onnx/onnx_pb.h"

namespace kvlift {

// Empty if both models are the same up to the names of nodes and of inner values and
// initialisers: opsets, IR version, graph inputs and outputs by name and type, nodes in order with
// operators, attributes and connections, constants by content. Else the first difference.
std::string FirstDifference(const onnx::ModelProto& a, const onnx::ModelProto& b);

}  // namespace kvlift
