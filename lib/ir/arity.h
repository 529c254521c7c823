// Checks that nodes have the inputs and outputs that their operators require, so that code which
// reads a node can rely on them. Also checks that attributes which are flags are 0 or 1, since
// runtimes read other values in different ways.
#pragma once

#include "absl/status/status.h"
#include "onnx/onnx_pb.h"

namespace kvlift {

// Checks every node of the main graph and of the bodies inside it (not of model-local functions)
// whose operator ONNX defines: no required input or output is missing or omitted, and there are no
// more of them than the imported version or the newest one allows. An operator that is newer than
// the imported version is checked against its newest schema. Flags such as `keepdims`, also of ONNX
// Runtime's operators, are 0 or 1. Returns InvalidArgument with the name of the node and the code
// KV026, or KV032 for a flag, or with KV023 if the version of an opset import is negative or does
// not fit into an int.
absl::Status CheckArity(const onnx::ModelProto& model);

}  // namespace kvlift
