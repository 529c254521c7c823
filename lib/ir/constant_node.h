// The value of a Constant node as a tensor, whichever attribute holds it.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "onnx/onnx_pb.h"

namespace kvlift {

struct ConstantTensor {
  // Null if the value is sparse or refers to an attribute of a function.
  const onnx::TensorProto* tensor = nullptr;
  // Holds *tensor if it was made from a scalar or a list; otherwise null, and the tensor is the
  // node's.
  std::unique_ptr<onnx::TensorProto> owned;
};

// Returns the value of a Constant node, which must outlive the result. Returns InvalidArgument
// unless the node has exactly one attribute, and that one holds a value of its kind. Source: ONNX
// Constant-13.
absl::StatusOr<ConstantTensor> ConstantNodeTensor(const onnx::NodeProto& node);

}  // namespace kvlift
