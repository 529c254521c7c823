// Finds attention around caches where no rule reads it.
#pragma once

#include "ir/graph.h"
#include "rewrite/rule.h"

namespace kvlift {

// The softmax, or the operator that holds one, which the cache's keys lead to or which weighs its
// values; kNoNode if the cache meets none within a few dozen nodes.
NodeId FindSoftmax(const Graph& graph, const CacheUpdate& update);

// The softmax that the operands of a node come from, within a few dozen nodes; kNoNode if there is
// none.
NodeId SoftmaxBehind(const Graph& graph, NodeId node);

}  // namespace kvlift
