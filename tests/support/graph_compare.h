// Structural comparison of two models.
#pragma once

#include <string>

#include "onnx/onnx_pb.h"

namespace kvlift {

// Returns the first difference of two models, or an empty string. Names of nodes, inner values and
// initializers do not matter. Compared are opsets, IR version, graph inputs and outputs by name and
// type, nodes in order with operators, attributes and connections, and constants by content.
std::string FirstDifference(const onnx::ModelProto& a, const onnx::ModelProto& b);

}  // namespace kvlift
