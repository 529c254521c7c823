// Fuses an Attention with the DequantizeLinear nodes of its int8 key and value caches
// (exec/kernels/attention/attention_quantized.h), so that the caches are never expanded to floats.
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "exec/kernels/common/kernel.h"
#include "ir/graph.h"
#include "onnx/onnx_pb.h"

namespace kvlift::exec {

struct FusedAttention {
  std::vector<NodeId> nodes;  // the DequantizeLinear and Mul nodes to remove
  onnx::NodeProto node;       // replaces the Attention
};

// The element type (0 if unknown) and the rank (-1 if unknown) of a value.
struct KnownValues {
  std::function<int32_t(ValueId)> type;
  std::function<int64_t(ValueId)> rank;
};

// Returns the fused node, or nullopt if it does not apply. Keys and values must be int8 [B, Nk, T,
// D] whose dequantised form has no other reader. The scales are one per block of elements of a row,
// one scalar, or a scalar 1 followed by a Mul with a float constant [1, Nk, 1, D]. An Attention
// with past inputs, several outputs or another softmax_precision than FLOAT does not apply. Needs
// opset 23 or later.
std::optional<FusedAttention> FuseQuantizedAttention(const Graph& graph, NodeId attention,
                                                     const KnownValues& known);

}  // namespace kvlift::exec
