// Writes sinks that an attention applies to its result as scores of an extra key.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "onnx/onnx_pb.h"

namespace kvlift {

struct KeyedSinks {
  onnx::ModelProto model;
  // For each result that is replaced: the prefix of the names of the new nodes, and the name of the
  // Mul that they replace.
  std::vector<std::pair<std::string, std::string>> replaced;
};

// Replaces the product of an attention's result and a gate,
//
//   MatMul(Softmax(scores), V) * Sigmoid(ReduceLogSumExp(scores) - sink)
//
// by MatMul(Slice(Softmax(Concat(scores, sink))), V), where the Slice takes the sink's weight off.
// Both are sum_t exp(scores_t) V_t / (exp(sink) + sum_t exp(scores_t)), up to roundings. The
// softmax and the sum are along the last axis, and Casts may stand behind the softmax and behind
// the gate. The model, whose opset is 13 or later, is returned unchanged if it has no such product.
// Fails if it has no valid graph.
absl::StatusOr<KeyedSinks> KeyGatedSinks(onnx::ModelProto model);

}  // namespace kvlift
