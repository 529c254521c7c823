// What ONNX's checker takes without a look: versions of operator sets, and sizes of data. And
// what runtimes refuse.
#pragma once

#include "absl/status/status.h"
#include "onnx/onnx_pb.h"

namespace kvlift {

// InvalidArgument with a code: KV028 if the model imports an operator set of ONNX in a version that
// this ONNX does not know, KV029 if a tensor does not hold the bytes that its type and shape need.
// External data is not looked at here; reading the model checks it.
absl::Status CheckContents(const onnx::ModelProto& model);

// InvalidArgument (KV101) if a node has two attributes of one name, in a subgraph or a function as
// well: which of them is meant cannot be told.
absl::Status CheckAttributes(const onnx::ModelProto& model);

// InvalidArgument (KV101) if two nodes of a graph have one name, which ONNX Runtime refuses.
absl::Status CheckNodeNames(const onnx::ModelProto& model);

}  // namespace kvlift
