#include "ir/live_nodes.h"

#include <vector>

namespace kvlift {

absl::flat_hash_set<NodeId> LiveNodes(const Graph& graph) {
  absl::flat_hash_set<NodeId> live;
  std::vector<ValueId> queue(graph.graph_outputs().begin(), graph.graph_outputs().end());
  while (!queue.empty()) {
    const NodeId n = queue.back() == kNoValue ? kNoNode : graph.producer(queue.back());
    queue.pop_back();
    if (n == kNoNode || !live.insert(n).second) continue;
    for (const auto& read : {graph.inputs(n), graph.captures(n)}) {
      queue.insert(queue.end(), read.begin(), read.end());
    }
  }
  return live;
}

}  // namespace kvlift
