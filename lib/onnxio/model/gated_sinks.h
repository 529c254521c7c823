// Writes sinks that an attention applies to its result as scores of an extra key.
#pragma once

#include "absl/status/statusor.h"
#include "onnx/onnx_pb.h"
#include "onnxio/model/rewritten.h"

namespace kvlift {

// The names of new values and nodes start with this.
inline constexpr char kGatedSinks[] = "/kvlift/sinks.";

// Replaces the product of an attention's result and a gate,
//
//   MatMul(Softmax(scores), V) * Sigmoid(ReduceLogSumExp(scores) - sink)
//
// by MatMul(Slice(Softmax(Concat(scores, sink))), V), where the Slice takes the sink's weight off.
// Both are sum_t exp(scores_t) V_t / (exp(sink) + sum_t exp(scores_t)), up to roundings, where some
// score is more than minus infinity; where none is, the first is NaN and the second 0. The softmax
// and the sum are along the last axis, on which the gate has one element. The model, whose opset is
// 13 or later, is returned unchanged if it has no such product. Fails if it has no valid graph.
absl::StatusOr<RewrittenModel> KeyGatedSinks(onnx::ModelProto model);

}  // namespace kvlift
