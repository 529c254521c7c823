// Finds the attention around a cache by its operators, where no rule reads it.
#pragma once

#include "absl/types/span.h"
#include "ir/graph.h"

namespace kvlift {

// Matrix products from a cache to its softmax: with the queries, and for latent keys with a
// projection before. What follows more products is another layer.
constexpr int kMaxProducts = 2;

// Returns true for operators with a state of fixed size: CausalConvWithState, LinearAttention.
bool IsStateOperator(const Graph& graph, NodeId n);

// Returns the softmax, or the operator that contains one, that reads the values as keys or weighs
// them as values. Returns kNoNode if a search of a few hundred values, over at most `max_products`
// matrix products, finds none.
NodeId FindSoftmax(const Graph& graph, absl::Span<const ValueId> values,
                   int max_products = kMaxProducts);

// Returns the softmax that the operands of a node are computed from, without a matrix product in
// between. Returns kNoNode if a search of 150 nodes finds none.
NodeId SoftmaxBehind(const Graph& graph, NodeId node);

}  // namespace kvlift
