// Finds the attention around a cache by its operators, where no rule reads it.
#pragma once

#include "absl/types/span.h"
#include "ir/graph.h"

namespace kvlift {

// The most products with weights between a cache and the softmax of the attention that reads it:
// keys and values may be projected from latent rows, or the scores of heads mixed (talking heads).
// An attention behind more products belongs to another layer.
constexpr int kMaxProjections = 1;

// Returns true for operators with a state of fixed size: CausalConvWithState, LinearAttention,
// GatedDeltaNet.
bool IsStateOperator(const Graph& graph, NodeId n);
// Returns which operand of such an operator is its state.
size_t StateOperandOf(const Graph& graph, NodeId n);

// Returns the softmax of the attention that reads `values` as keys or values, or the operator that
// contains it. A softmax counts if it reads the product of the keys with another computed value, or
// if its result is multiplied with the values, with no other such product in between; that of a
// router of experts does neither. Returns kNoNode if a search of a few hundred values, over at most
// `max_projections` products with weights, finds none.
NodeId FindSoftmax(const Graph& graph, absl::Span<const ValueId> values,
                   int max_projections = kMaxProjections);

// Returns the softmax that the operands of a node are computed from, without a matrix product in
// between. Returns kNoNode if a search of 150 nodes finds none.
NodeId SoftmaxBehind(const Graph& graph, NodeId node);

// Returns the node between a softmax and the product of its weights with values, as a quantiser is;
// casts, operators that move data and products with weights are looked through. Returns kNoNode if
// the product follows, or if a search of a few nodes ends elsewhere.
NodeId BetweenSoftmaxAndProduct(const Graph& graph, NodeId softmax);

// Returns true if that node may give a key that a mask hides another weight than 0, as a Sigmoid
// behind the softmax does.
bool MayWeighHiddenKeys(const Graph& graph, NodeId softmax);

// Returns the node that quantises the scores of an attention behind all of its masks, in front of
// its softmax; kNoNode if no node does. Hidden keys get the lowest code, which stands for a
// finite number, so that the softmax gives them a weight.
NodeId QuantizerOfScores(const Graph& graph, NodeId attention);

}  // namespace kvlift
