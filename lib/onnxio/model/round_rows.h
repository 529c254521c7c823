// Moves the quantiser of a whole present to the rows that a step adds.
#pragma once

#include "absl/status/statusor.h"
#include "onnx/onnx_pb.h"
#include "onnxio/model/rewritten.h"

namespace kvlift {

// Replaces a quantiser (ir/operators/quantizer.h) of a graph output, or of a value that operators
// only move to make the output, by quantisers of the parts of the rounded value:
//
//   DequantizeLinear(QuantizeLinear(Concat(past, new))) =
//       Concat(DequantizeLinear(QuantizeLinear(past)), DequantizeLinear(QuantizeLinear(new)))
//   DequantizeLinear(Concat(QuantizeLinear(past), codes)) =
//       Concat(DequantizeLinear(QuantizeLinear(past)), DequantizeLinear(codes))
//
// and alike for other operators that only move elements. Both sides hold the same bits, since each
// element is rounded alone. Other readers of the codes read QuantizeLinear of the right-hand side.
// Outputs that no graph input of real numbers reaches in this way stay as they are. A model without
// such outputs is returned unchanged. Fails if the model has no valid graph.
absl::StatusOr<RewrittenModel> RoundRowsFirst(onnx::ModelProto model);

}  // namespace kvlift
