// Finds the nodes of a graph that its outputs need.
#pragma once

#include <vector>

#include "absl/container/flat_hash_set.h"
#include "ir/graph.h"

namespace kvlift {

// Returns the nodes that an output of the graph depends on, captures by bodies included. A runtime
// need not run the others.
absl::flat_hash_set<NodeId> LiveNodes(const Graph& graph);
// Returns the nodes that one of these values depends on, captures by bodies included. kNoValue is
// skipped.
absl::flat_hash_set<NodeId> NodesBehind(const Graph& graph, std::vector<ValueId> values);
// Returns the uses of a value by nodes of `live` and by graph outputs. An Identity is no use; the
// uses of its result are.
std::vector<Use> LiveUses(const Graph& graph, const absl::flat_hash_set<NodeId>& live, ValueId v);

}  // namespace kvlift
