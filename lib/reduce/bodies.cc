// The reductions of nodes in the bodies of If, Loop and Scan, and of branches of If.
#include <algorithm>
#include <map>
#include <utility>

#include "base/status.h"
#include "fmt/format.h"
#include "ir/subgraphs.h"
#include "reduce/edits.h"
#include "reduce/reductions.h"

namespace kvlift {
namespace {

using onnx::GraphProto;
using onnx::NodeProto;
using Names = absl::flat_hash_set<std::string>;

// Calls visit(body, path) for each body below a graph, outer ones first. The path has the values
// and attributes that lead to the body, each with a line break behind it.
template <typename Visit>
void ForEachBody(GraphProto* main, const Visit& visit) {
  std::vector<std::pair<GraphProto*, std::string>> open = {{main, ""}};
  while (!open.empty()) {
    const auto [graph, path] = std::move(open.back());
    open.pop_back();
    if (graph != main) visit(graph, path);
    for (NodeProto& node : *graph->mutable_node()) {
      if (node.output().empty()) continue;
      for (onnx::AttributeProto& attribute : *node.mutable_attribute()) {
        if (!attribute.has_g()) continue;
        open.emplace_back(attribute.mutable_g(),
                          fmt::format("{}{}\n{}\n", path, node.output(0), attribute.name()));
      }
    }
  }
}

// Returns the only output of a node; empty if it has more than one, or none.
std::string Result(const NodeProto& node) {
  std::string result;
  for (const std::string& output : node.output()) {
    if (output.empty()) continue;
    if (!result.empty()) return {};
    result = output;
  }
  return result;
}

bool IsOutput(const GraphProto& graph, const std::string& name) {
  return std::any_of(graph.output().begin(), graph.output().end(),
                     [&](const auto& output) { return output.name() == name; });
}

bool IsComputed(const GraphProto& graph, const std::string& name) {
  return std::any_of(graph.node().begin(), graph.node().end(), [&](const NodeProto& node) {
    return std::find(node.output().begin(), node.output().end(), name) != node.output().end();
  });
}

absl::Status RenameIn(GraphProto* graph, const std::string& from, const std::string& to) {
  for (NodeProto& node : *graph->mutable_node()) {
    KV_RETURN_IF_ERROR(RenameValues({{from, to}}, &node));
  }
  return absl::OkStatus();
}

// Removes nodes that compute nothing for others, and weights that no node reads.
absl::Status RemoveUnread(GraphProto* graph) {
  for (bool removed = true; removed;) {
    Names read;
    for (const auto& output : graph->output()) read.insert(output.name());
    for (const NodeProto& node : graph->node()) {
      read.insert(node.input().begin(), node.input().end());
      KV_ASSIGN_OR_RETURN(const std::vector<Scope> scopes, CollectScopes(node));
      for (const std::string_view name : CapturedNames(scopes)) read.emplace(name);
    }
    const auto unread = [&](const std::string& name) { return !read.contains(name); };
    auto& nodes = *graph->mutable_node();
    const auto rest = std::remove_if(nodes.begin(), nodes.end(), [&](const NodeProto& node) {
      return std::all_of(node.output().begin(), node.output().end(), unread);
    });
    removed = rest != nodes.end();
    nodes.erase(rest, nodes.end());
    auto& weights = *graph->mutable_initializer();
    weights.erase(
        std::remove_if(weights.begin(), weights.end(),
                       [&](const onnx::TensorProto& weight) { return unread(weight.name()); }),
        weights.end());
  }
  return absl::OkStatus();
}

// Removes the node at `at`. What reads its result reads the operand instead.
absl::Status PassNode(GraphProto* body, int at, const std::string& operand) {
  const std::string result = Result(body->node(at));
  if (!IsOutput(*body, result)) {
    body->mutable_node()->DeleteSubrange(at, 1);
    return RenameIn(body, result, operand);
  }
  // An output is computed in the body itself.
  if (IsComputed(*body, operand) && !IsOutput(*body, operand)) {
    body->mutable_node()->DeleteSubrange(at, 1);
    return RenameIn(body, operand, result);
  }
  NodeProto& node = *body->mutable_node(at);
  const std::string name = node.name();
  node.Clear();
  if (!name.empty()) node.set_name(name);
  node.set_op_type("Identity");
  node.add_input(operand);
  node.add_output(result);
  return absl::OkStatus();
}

// Returns nodes in bodies with the names of their elements, one for each operand.
std::vector<std::pair<std::string, std::string>> NodesInBodies(const Graph& graph) {
  std::vector<std::pair<std::string, std::string>> nodes;
  onnx::ModelProto model = graph.model();
  ForEachBody(model.mutable_graph(), [&](GraphProto* body, const std::string& path) {
    for (const NodeProto& node : body->node()) {
      const std::string result = Result(node);
      if (result.empty()) continue;
      for (int k = 0; k < node.input_size(); ++k) {
        if (node.input(k).empty()) continue;
        nodes.emplace_back(fmt::format("{}{}\n{}", path, result, k), node.SerializeAsString());
      }
    }
  });
  return nodes;
}

class BodyNodes : public Reduction {
 public:
  std::string_view name() const override { return "nodes in bodies"; }

  std::vector<std::string> Elements(const SubjectGraphs& graphs) const override {
    const auto nodes = NodesInBodies(graphs.before());
    std::map<std::string, std::string> others;
    if (graphs.subject().is_pair()) {
      for (auto& [name, node] : NodesInBodies(graphs.after())) others[name] = std::move(node);
    }
    std::vector<std::string> names;
    for (const auto& [name, node] : nodes) {
      const auto other = others.find(name);
      const bool both = other != others.end() && other->second == node;
      if (both || !graphs.subject().is_pair()) names.push_back(name);
    }
    return names;
  }

  absl::StatusOr<Subject> Without(const SubjectGraphs& graphs,
                                  absl::Span<const std::string> elements) const override {
    const Names gone(elements.begin(), elements.end());
    return EditEach(graphs, [&](const Graph& graph) -> absl::StatusOr<onnx::ModelProto> {
      onnx::ModelProto model = graph.model();
      absl::Status status;
      ForEachBody(model.mutable_graph(), [&](GraphProto* body, const std::string& path) {
        if (status.ok()) status = EditBody(gone, path, body);
      });
      if (!status.ok()) return status;
      return model;
    });
  }

 private:
  // Takes away each element once, as another node may get the name of a result.
  static absl::Status EditBody(Names gone, const std::string& path, GraphProto* body) {
    bool edited = false;
    // From the last node on, so that removing one moves none that is still to come.
    for (int at = body->node_size() - 1; at >= 0; --at) {
      const std::string result = Result(body->node(at));
      for (int k = 0; k < body->node(at).input_size(); ++k) {
        if (gone.erase(fmt::format("{}{}\n{}", path, result, k)) == 0) continue;
        const std::string operand = body->node(at).input(k);
        KV_RETURN_IF_ERROR(PassNode(body, at, operand));
        edited = true;
        break;
      }
    }
    return edited ? RemoveUnread(body) : absl::OkStatus();
  }
};

// Branches: an If of the main graph becomes the nodes of one of its branches. Of a pair, the
// conversion may have no such node, so that the models would no longer correspond.
class Branches : public Reduction {
 public:
  std::string_view name() const override { return "branches"; }

  std::vector<std::string> Elements(const SubjectGraphs& graphs) const override {
    std::vector<std::string> names;
    if (graphs.subject().is_pair()) return names;
    for (const NodeProto& node : graphs.before().proto().node()) {
      if (node.op_type() != "If" || !node.domain().empty() || node.output().empty()) continue;
      for (const auto& attribute : node.attribute()) {
        if (attribute.has_g()) names.push_back(Key(node, attribute));
      }
    }
    return names;
  }

  absl::StatusOr<Subject> Without(const SubjectGraphs& graphs,
                                  absl::Span<const std::string> elements) const override {
    const Names kept(elements.begin(), elements.end());
    return EditEach(graphs, [&](const Graph& graph) -> absl::StatusOr<onnx::ModelProto> {
      onnx::ModelProto model = graph.model();
      GraphProto* main = model.mutable_graph();
      google::protobuf::RepeatedPtrField<NodeProto> nodes;
      nodes.Swap(main->mutable_node());
      Names names;
      for (ValueId v = 0; v < graph.num_values(); ++v) names.insert(graph.name(v));
      for (NodeProto& node : nodes) {
        const GraphProto* branch = BranchOf(node, kept);
        if (branch == nullptr) {
          *main->add_node() = std::move(node);
        } else {
          KV_RETURN_IF_ERROR(Unfold(node, *branch, &names, main));
        }
      }
      return model;
    });
  }

 private:
  static std::string Key(const NodeProto& node, const onnx::AttributeProto& branch) {
    return fmt::format("{}\n{}", node.output(0), branch.name());
  }

  static const GraphProto* BranchOf(const NodeProto& node, const Names& kept) {
    if (node.op_type() != "If" || node.output().empty()) return nullptr;
    for (const auto& attribute : node.attribute()) {
      if (attribute.has_g() && kept.contains(Key(node, attribute))) return &attribute.g();
    }
    return nullptr;
  }

  // Adds the nodes and weights of a branch to the main graph. FailedPrecondition if a name of the
  // branch is taken there.
  static absl::Status Unfold(const NodeProto& node, const GraphProto& branch, Names* names,
                             GraphProto* main) {
    GraphProto own = branch;
    std::vector<std::pair<std::string, std::string>> passed;  // result of the If, value
    for (int k = 0; k < std::min(node.output_size(), own.output_size()); ++k) {
      const std::string value = own.output(k).name();
      if (node.output(k).empty()) continue;
      if (IsComputed(own, value)) {
        KV_RETURN_IF_ERROR(RenameIn(&own, value, node.output(k)));
        names->erase(node.output(k));
        own.mutable_output(k)->set_name(node.output(k));
      } else {
        passed.emplace_back(node.output(k), value);
      }
    }
    const auto is_new = [&](const std::string& name) {
      return name.empty() || names->insert(name).second;
    };
    bool free = true;
    for (const onnx::TensorProto& weight : own.initializer()) free = free && is_new(weight.name());
    for (const NodeProto& inner : own.node()) {
      for (const std::string& output : inner.output()) free = free && is_new(output);
    }
    if (!free) return absl::FailedPreconditionError("a name of the branch is taken");
    for (onnx::TensorProto& weight : *own.mutable_initializer()) {
      *main->add_initializer() = std::move(weight);
    }
    for (NodeProto& inner : *own.mutable_node()) *main->add_node() = std::move(inner);
    for (const auto& [result, value] : passed) {
      NodeProto& identity = *main->add_node();
      identity.set_op_type("Identity");
      identity.add_input(value);
      identity.add_output(result);
    }
    return absl::OkStatus();
  }
};

}  // namespace

const Reduction& BodyNodesReduction() {
  static const BodyNodes kReduction;
  return kReduction;
}

const Reduction& BranchesReduction() {
  static const Branches kReduction;
  return kReduction;
}

}  // namespace kvlift
