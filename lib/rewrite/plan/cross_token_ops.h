// Finds operators outside attention whose rows depend on other tokens of the step (padding tokens
// among them) or on other sequences of the batch.
#pragma once

#include <vector>

#include "ir/graph.h"
#include "rewrite/recognise/analysis.h"

namespace kvlift {

// Returns the first node outside the attentions that combines real numbers of several tokens or
// sequences, by dynamic quantisation, or by a reduction, a norm or a product over such an axis; or
// that combines integers of several tokens, such as their sum. Returns kNoNode if no node does.
// Axes that contain rows of the past are keys; they count where something else than the softmax and
// the product of an attention combines them.
NodeId FindCrossTokenOp(const Analysis& analysis);

// Whether an overflow test counts as such a node. Models in half precision (T5) test whether any
// number of a step is infinite or NaN, and clamp all tokens if one is.
enum class OverflowTests { kFound, kLeftOut };

// Returns the first node by which a token depends on later tokens, or on other sequences, of its
// step: padding tokens behind a sequence then change the results of its real tokens. Returns
// kNoNode also if no step has padding tokens, since it has one token or one sequence.
NodeId FindMixingWithPads(const Analysis& analysis, OverflowTests tests = OverflowTests::kFound);

// Returns the first node that combines integers of all tokens of a step in a way that decoders
// need: the largest or smallest position, or the places of nonzero elements. Returns kNoNode if no
// node does.
NodeId FindCountedTokens(const Analysis& analysis);

// Returns the first node that computes with rows of another sequence than its own, such as those of
// the batch in reversed order, or those of the first sequence for all; kNoNode if no node does.
NodeId FindReorderedSequences(const Analysis& analysis);

// Returns the first node outside the attentions by which a token depends on the real numbers of
// another token of its step, earlier ones included; kNoNode if no such node is found. Where padding
// tokens see no key, their rows may differ between the models, and such a node passes that on.
NodeId FindOtherTokens(const Analysis& analysis);

// Returns the first node outside the attentions that reduces or counts integers of the host, such
// as positions, over the axis of sequences, so that all sequences of a batch share the result; or
// the first whose result depends on the number of sequences, or on the place of a sequence in the
// batch. Returns kNoNode if no node does.
NodeId FindBatchReduction(const Analysis& analysis);

// Returns, by node, the first DynamicQuantize* node that its outputs lead to; kNoNode if there is
// none. A difference in the last bit in front of such a node can change a whole quantisation step.
std::vector<NodeId> DynamicQuantizationBehind(const Graph& graph);

}  // namespace kvlift
