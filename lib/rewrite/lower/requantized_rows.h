// Operators of com.microsoft that put quantised numbers of several scales together, as
// onnxruntime.quantization writes them for the format QOperator.
#pragma once

#include "absl/status/status.h"
#include "rewrite/types/normalised.h"

namespace kvlift {

// Replaces each QLinearConcat and each QLinearWhere that hands on a quantised graph input by a
// Concat or a Where of codes:
//
//   QLinearConcat(scale, zero, codes_0, scale_0, zero_0, ...) = Concat(part_0, ...)
//   part_k = QuantizeLinear(DequantizeLinear(codes_k, scale_k, zero_k), scale, zero)
//
// and part_k = codes_k where the scales and the zero points are the same constants. All other nodes
// stay. Source: ONNX Runtime, contrib operators QLinearConcat and QLinearWhere.
absl::Status LowerRequantizedRows(Normalised* result);

}  // namespace kvlift
