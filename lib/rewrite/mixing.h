// Rows that depend on what else is in the step: other tokens, pads among them, or other sequences.
#pragma once

#include "ir/graph.h"
#include "rewrite/analysis.h"

namespace kvlift {

// The first node outside the attentions that takes real numbers of several tokens or sequences into
// one: quantisation by the largest of all, reductions, norms and products over such an axis;
// kNoNode if there is none. Axes that hold the past's rows are keys, and no concern of this.
NodeId FindMixing(const Analysis& analysis);

// The first node behind `node` that quantises by the largest of all numbers: it makes steps of
// roundings. kNoNode if there is none.
NodeId FindDynamicQuantization(const Graph& graph, NodeId node);

}  // namespace kvlift
