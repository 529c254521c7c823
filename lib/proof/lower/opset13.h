// Upgrades models of opsets 7 to 12 to opset 13, the oldest opset that has symbolic forms
// (sym/forms/forms.h).
#pragma once

#include "absl/status/statusor.h"
#include "onnx/onnx_pb.h"

namespace kvlift {

// The attribute that marks the nodes for which FlattensFromAxis is true.
inline constexpr char kFlattensFromAxis[] = "flattens from its axis";

// Returns true if a Softmax, LogSoftmax or Hardmax of the upgraded model flattens all axes from its
// `axis` on, as before opset 13. It equals the operator of opset 13 only if that axis is the last
// one.
bool FlattensFromAxis(const onnx::NodeProto& node);

// Returns the model at opset 13, with attributes that became inputs turned into constants. A model
// of opset 13 or later is returned unchanged. Returns Unimplemented if the opset is below 7 or an
// operator has another meaning in opset 13. Bodies of If, Loop and Scan are raised as well.
absl::StatusOr<onnx::ModelProto> AsOpset13(onnx::ModelProto model);

}  // namespace kvlift
