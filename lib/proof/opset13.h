// Models of older opsets as they would be written in opset 13, the oldest one that has forms.
#pragma once

#include "absl/status/statusor.h"
#include "onnx/onnx_pb.h"

namespace kvlift {

// Whether an operator reads the model's axis as "everything from here on", as Softmax did before
// opset 13: then it is one with Softmax of today only where that axis is the last.
bool FlattensFromAxis(const onnx::NodeProto& node);

// Attributes that became inputs become constants. A model at opset 13 or later stays as it is.
// Unimplemented: an operator that is read in another way there. The graph has no bodies.
absl::StatusOr<onnx::ModelProto> AsOpset13(onnx::ModelProto model);

}  // namespace kvlift
