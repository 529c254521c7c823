// The nodes of a graph that runtimes run.
#pragma once

#include "absl/container/flat_hash_set.h"
#include "ir/graph.h"

namespace kvlift {

// Returns the nodes that outputs of the graph depend on, also by what bodies capture. Runtimes
// leave out the others.
absl::flat_hash_set<NodeId> LiveNodes(const Graph& graph);

}  // namespace kvlift
