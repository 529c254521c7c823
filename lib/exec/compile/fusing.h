// Fuses chains of elementwise operators and operators along the last axis into single nodes
// (exec/kernels/elementwise/rows.h), with bit-equal results: norms, rotary embeddings by halves,
// gated activations, scales and masks.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "ir/graph.h"

namespace kvlift::exec {

// Returns the graph with such chains fused, or `graph` itself if there are none. Fused are
// operators on float, float16 or bfloat16 that work elementwise or along the last axis, whose only
// result is read inside the chain alone. A MatMul with constant weights also takes in the Add that
// is its only reader (a residual connection). `attention`: an Attention takes in the
// DequantizeLinear of its keys and values (fusing_attention.h), which the fast order alone
// supports. In the result all constants are initialisers; those of more than 1024 bytes have type
// and shape but no data. Fails if the new graph cannot be built.
absl::StatusOr<std::shared_ptr<const Graph>> FuseRows(std::shared_ptr<const Graph> graph,
                                                      bool attention = false);

}  // namespace kvlift::exec
