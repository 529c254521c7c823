#include "rewrite/rule.h"

#include <utility>

namespace kvlift {

Finding MakeFinding(std::string_view code, std::string text, const Graph& graph,
                    absl::Span<const NodeId> nodes, absl::Span<const ValueId> values) {
  Finding finding{std::string(code), std::move(text), {}, {}};
  for (NodeId n : nodes) {
    if (n != kNoNode) finding.nodes.push_back(graph.NodeName(n));
  }
  for (ValueId v : values) {
    if (v != kNoValue) finding.values.push_back(graph.name(v));
  }
  // Without a node, the readers of the values say where the finding is.
  if (finding.nodes.empty()) {
    for (ValueId v : values) {
      if (v == kNoValue) continue;
      for (const Use& use : graph.uses(v)) {
        if (use.node != kNoNode) finding.nodes.push_back(graph.NodeName(use.node));
        if (finding.nodes.size() >= 3) return finding;
      }
    }
  }
  return finding;
}

}  // namespace kvlift
