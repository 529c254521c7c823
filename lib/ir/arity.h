// Checks the numbers of inputs and outputs of nodes, so that code that reads a node later can rely
// on the operands and results that its operator requires.
#pragma once

#include "absl/status/status.h"
#include "onnx/onnx_pb.h"

namespace kvlift {

// Checks every node of the main graph and of the bodies inside it (not of model-local functions)
// whose operator ONNX defines: no required input or output is missing or omitted, and there are no
// more of them than the imported version or the newest one allows. An operator that is newer than
// the imported version is held to its newest text. Returns InvalidArgument with the code KV026 and
// the name of the node, or with KV023 if the version of an opset import is negative or no int.
absl::Status CheckArity(const onnx::ModelProto& model);

}  // namespace kvlift
