// Finds attention around caches where no rule reads it.
#pragma once

#include "absl/types/span.h"
#include "ir/graph.h"

namespace kvlift {

// The softmax, or the operator that holds one, which the values lead to as keys or which weighs
// them; kNoNode if they meet none within a few dozen nodes.
NodeId FindSoftmax(const Graph& graph, absl::Span<const ValueId> values);

// The softmax that the operands of a node come from, within a few dozen nodes; kNoNode if there is
// none.
NodeId SoftmaxBehind(const Graph& graph, NodeId node);

}  // namespace kvlift
