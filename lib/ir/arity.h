// Checks the numbers of inputs and outputs of nodes, so that code that reads a node later can rely
// on the operands and results that its operator requires, and the attributes that are flags, which
// runtimes read in different ways if they are neither 0 nor 1.
#pragma once

#include "absl/status/status.h"
#include "onnx/onnx_pb.h"

namespace kvlift {

// Checks every node of the main graph and of the bodies inside it (not of model-local functions)
// whose operator ONNX defines: no required input or output is missing or omitted, and there are no
// more of them than the imported version or the newest one allows. An operator that is newer than
// the imported version is held to its newest text. Flags such as `keepdims`, also of ONNX Runtime's
// operators, are 0 or 1. Returns InvalidArgument with the name of the node and the code KV026, or
// KV032 for a flag, or with KV023 if the version of an opset import is negative or no int.
absl::Status CheckArity(const onnx::ModelProto& model);

}  // namespace kvlift
