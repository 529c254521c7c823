// QLinearConcat and QLinearWhere of com.microsoft in standard operators.
#pragma once

#include "absl/status/statusor.h"
#include "onnx/onnx_pb.h"

namespace kvlift {

// Returns the model with each QLinearConcat and QLinearWhere of the main graph as a Concat or a
// Where of 8-bit numbers. An operand whose scale or zero point is another one than the result's is
// dequantised and quantised again, as ONNX Runtime's table of all 256 numbers does. Fails if the
// model has no valid graph. Source: ONNX Runtime, qlinear_concat.cc, qlinear_where.cc.
absl::StatusOr<onnx::ModelProto> ExpandRequantized(onnx::ModelProto model);

}  // namespace kvlift
