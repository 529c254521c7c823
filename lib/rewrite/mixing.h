// Rows that depend on what else is in the step: other tokens, pads among them, or other sequences.
#pragma once

#include <vector>

#include "ir/graph.h"
#include "rewrite/analysis.h"

namespace kvlift {

// The first node outside the attentions that takes real numbers of several tokens or sequences into
// one, by quantisation with the largest of all, reductions, norms or products over such an axis; or
// that takes integers of several tokens into one, such as a sum over their numbers. kNoNode if no
// node does. Axes that hold the past's rows are keys, which attention takes together.
NodeId FindMixing(const Analysis& analysis);

// The first of these by which a token sees later ones, or other sequences, of its step: padding
// tokens behind a sequence then change what its real tokens give. kNoNode as well where a step has
// no such tokens, for it holds one token, or one sequence.
NodeId FindMixingWithPads(const Analysis& analysis);

// Returns the first node that takes together integers of all tokens of a step in a way that
// decoders need, the largest position or the elements that are not zero; kNoNode if no node does.
NodeId FindCountedTokens(const Analysis& analysis);

// The first node that computes with rows of another sequence than its own, in reversed order, say,
// or with those of the first one for all; kNoNode if there is none.
NodeId FindMovedSequences(const Analysis& analysis);

// The first node outside the attentions that reduces or counts what the host feeds, positions among
// it, over the axis of sequences, so that all sequences of a batch get the same of it; kNoNode if
// there is none.
NodeId FindJoinedSequences(const Analysis& analysis);

// By node: the first one behind it that quantises by the largest of all numbers, which makes steps
// of roundings; kNoNode if there is none.
std::vector<NodeId> DynamicQuantizationBehind(const Graph& graph);

}  // namespace kvlift
