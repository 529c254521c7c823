#include "rewrite/lower/dead_nodes.h"

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "base/status.h"
#include "ir/graph.h"

namespace kvlift {
namespace {

class Remover {
 public:
  explicit Remover(const Graph& graph) : graph_(graph) {}

  void Run(onnx::GraphProto* graph) {
    for (NodeId n = graph_.num_nodes(); n-- > 0;) {
      if (IsUnread(n)) gone_.insert(&graph_.node(n));
    }
    for (NodeId n = 0; n < graph_.num_nodes(); ++n) {
      if (graph_.Is(n, "Identity") && !gone_.contains(&graph_.node(n))) Look(n);
    }
    std::vector<bool> goes;
    for (const onnx::NodeProto& node : graph_.proto().node()) goes.push_back(gone_.contains(&node));
    auto* nodes = graph->mutable_node();
    int kept = 0;
    for (int k = 0; k < nodes->size(); ++k) {
      if (!goes[k]) nodes->SwapElements(kept++, k);
    }
    nodes->DeleteSubrange(kept, nodes->size() - kept);
    for (onnx::NodeProto& node : *nodes) {
      for (std::string& name : *node.mutable_input()) name = NameOf(name);
      for (std::string& name : *node.mutable_output()) name = NameOf(name);
    }
  }

 private:
  bool IsUnread(NodeId n) const {
    const auto outputs = graph_.outputs(n);
    return std::all_of(outputs.begin(), outputs.end(), [&](ValueId v) {
      if (v == kNoValue) return true;
      const auto uses = graph_.uses(v);
      return std::all_of(uses.begin(), uses.end(), [&](const Use& use) {
        return use.kind != Use::Kind::kGraphOutput && gone_.contains(&graph_.node(use.node));
      });
    });
  }

  void Look(NodeId n) {
    const ValueId from = graph_.inputs(n)[0], to = graph_.outputs(n)[0];
    if (from == kNoValue || to == kNoValue || IsCaptured(from) || IsCaptured(to)) return;
    if (!graph_.is_graph_output(to)) {
      names_[graph_.name(to)] = graph_.name(from);
    } else if (graph_.producer(from) != kNoNode && !graph_.is_graph_output(from) &&
               !names_.contains(graph_.name(from))) {
      names_[graph_.name(from)] = graph_.name(to);
    } else {
      return;
    }
    gone_.insert(&graph_.node(n));
  }

  bool IsCaptured(ValueId v) const {
    const auto uses = graph_.uses(v);
    return std::any_of(uses.begin(), uses.end(), [](const Use& use) {
      return use.kind != Use::Kind::kNodeInput && use.kind != Use::Kind::kGraphOutput;
    });
  }

  // Follows replaced names: from copies to what they copy, and from there at most once to an
  // output.
  std::string NameOf(const std::string& name) const {
    std::string now = name;
    for (auto it = names_.find(now); it != names_.end(); it = names_.find(now)) now = it->second;
    return now;
  }

  const Graph& graph_;
  absl::flat_hash_map<std::string, std::string> names_;
  absl::flat_hash_set<const onnx::NodeProto*> gone_;
};

}  // namespace

absl::Status RemoveDeadNodes(onnx::ModelProto* model) {
  // Does not own the model: the graph is read before the model changes.
  const std::shared_ptr<const onnx::ModelProto> borrowed(std::shared_ptr<void>(), model);
  KV_ASSIGN_OR_RETURN(const Graph graph, Graph::Build(borrowed));
  Remover(graph).Run(model->mutable_graph());
  return absl::OkStatus();
}

}  // namespace kvlift
