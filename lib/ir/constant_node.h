// The tensor that a Constant node stands for, whichever of its attributes holds the value.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "onnx/onnx_pb.h"

namespace kvlift {

struct ConstantTensor {
  const onnx::TensorProto* tensor = nullptr;  // nullptr: sparse, or a reference to an attribute
  std::unique_ptr<onnx::TensorProto> owned;   // set if the tensor is not the node's own
};

// InvalidArgument unless the node has exactly one value attribute of the right kind.
absl::StatusOr<ConstantTensor> ConstantNodeTensor(const onnx::NodeProto& node);

}  // namespace kvlift
