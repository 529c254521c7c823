#include "ir/live_nodes.h"

#include <utility>

namespace kvlift {

absl::flat_hash_set<NodeId> LiveNodes(const Graph& graph) {
  return NodesBehind(graph, {graph.graph_outputs().begin(), graph.graph_outputs().end()});
}

absl::flat_hash_set<NodeId> NodesBehind(const Graph& graph, std::vector<ValueId> values) {
  absl::flat_hash_set<NodeId> live;
  std::vector<ValueId> queue = std::move(values);
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

std::vector<Use> LiveUses(const Graph& graph, const absl::flat_hash_set<NodeId>& live, ValueId v) {
  std::vector<Use> uses;
  std::vector<ValueId> same = {v};
  for (size_t k = 0; k < same.size(); ++k) {
    for (const Use& use : graph.uses(same[k])) {
      if (use.node != kNoNode && !live.contains(use.node)) continue;
      if (use.kind == Use::Kind::kNodeInput && graph.Is(use.node, "Identity")) {
        same.push_back(graph.outputs(use.node)[0]);
      } else {
        uses.push_back(use);
      }
    }
  }
  return uses;
}

}  // namespace kvlift
