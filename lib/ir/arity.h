// How many inputs and outputs the nodes of a graph have: whoever reads a node later may rely on it
// that operands and results which its operator requires are there.
#pragma once

#include "absl/status/status.h"
#include "onnx/onnx_pb.h"

namespace kvlift {

// Nodes of the graph and of all bodies below it, whose operators ONNX defines in the version that
// the model imports, or in a later one: no operand that is required is missing or omitted, and none
// is too many.
// InvalidArgument names the node.
absl::Status CheckArity(const onnx::ModelProto& model);

}  // namespace kvlift
