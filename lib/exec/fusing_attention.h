// Attentions over int8 caches: the DequantizeLinear of keys and of values become part of the
// Attention (kernels/attention_quantized.h), so that no buffer of floats is made.
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "exec/kernel.h"
#include "ir/graph.h"
#include "onnx/onnx_pb.h"

namespace kvlift::exec {

struct FusedAttention {
  std::vector<NodeId> nodes;  // the DequantizeLinear nodes and products behind them, which go
  onnx::NodeProto node;       // instead of the Attention
};

// `type` and `rank` of a value, 0 and -1 if unknown.
struct KnownValues {
  std::function<int32_t(ValueId)> type;
  std::function<int64_t(ValueId)> rank;
};

// Joined are int8 rows [B, Nk, T, D] that nobody else reads as floats: in blocks of D, with one
// scale for all, or with constants [1, Nk, 1, D] that a Mul multiplies by.
std::optional<FusedAttention> FuseQuantizedAttention(const Graph& graph, NodeId attention,
                                                     const KnownValues& known);

}  // namespace kvlift::exec
