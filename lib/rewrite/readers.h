// Finds attention around caches where no rule reads it.
#pragma once

#include "absl/types/span.h"
#include "ir/graph.h"

namespace kvlift {

// Keys meet the queries, latent ones a projection before; what comes behind is another layer.
constexpr int kMaxProducts = 2;

// A layer that hands on a state of fixed size by itself: CausalConvWithState, LinearAttention.
bool IsStateOperator(const Graph& graph, NodeId n);

// The softmax, or the operator that holds one, which the values lead to as keys or which weighs
// them; kNoNode if they meet none within a few dozen nodes and so many products.
NodeId FindSoftmax(const Graph& graph, absl::Span<const ValueId> values,
                   int max_products = kMaxProducts);

// The softmax that the operands of a node come from, within a few dozen nodes; kNoNode if there is
// none.
NodeId SoftmaxBehind(const Graph& graph, NodeId node);

}  // namespace kvlift
