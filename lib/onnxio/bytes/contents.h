// Checks that ONNX's checker does not make: versions of operator sets, sizes of data, and
// properties that runtimes refuse.
#pragma once

#include "absl/status/status.h"
#include "onnx/onnx_pb.h"

namespace kvlift {

// Returns InvalidArgument with code KV028 if the model imports a version of ONNX's operator set
// that this ONNX does not know, and KV029 if a tensor does not hold the bytes that its type and
// shape need. Does not check external data; reading the model does that.
absl::Status CheckContents(const onnx::ModelProto& model);

// Returns InvalidArgument (KV101) if a node has two attributes of one name, in subgraphs and
// functions too, since it is not defined which of them applies.
absl::Status CheckAttributes(const onnx::ModelProto& model);

// Returns InvalidArgument (KV101) if two nodes of a graph have one name, which ONNX Runtime
// refuses.
absl::Status CheckNodeNames(const onnx::ModelProto& model);

}  // namespace kvlift
