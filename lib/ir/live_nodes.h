// Finds the nodes of a graph that its outputs need.
#pragma once

#include "absl/container/flat_hash_set.h"
#include "ir/graph.h"

namespace kvlift {

// Returns the nodes that an output of the graph depends on, captures by bodies included. A runtime
// need not run the others.
absl::flat_hash_set<NodeId> LiveNodes(const Graph& graph);

}  // namespace kvlift
