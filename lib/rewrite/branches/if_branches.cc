#include "rewrite/branches/if_branches.h"

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "base/status.h"
#include "fmt/format.h"
#include "ir/graph.h"
#include "ir/subgraphs.h"

namespace kvlift {
namespace {

using Names = absl::flat_hash_map<std::string, std::string>;

const onnx::GraphProto* BranchOf(const onnx::NodeProto& node, bool condition) {
  const auto* attribute = FindAttribute(node, condition ? "then_branch" : "else_branch");
  return attribute != nullptr && attribute->has_g() ? &attribute->g() : nullptr;
}

// Replaces If nodes of one graph by branches.
class Inliner {
 public:
  explicit Inliner(onnx::GraphProto* graph) : graph_(graph) {}

  // chosen: the index of an If in the graph -> the branch that replaces it.
  absl::Status Run(const absl::flat_hash_map<int, const onnx::GraphProto*>& chosen) {
    KV_RETURN_IF_ERROR(CollectNames(chosen));
    google::protobuf::RepeatedPtrField<onnx::NodeProto> nodes;
    for (int i = 0; i < graph_->node_size(); ++i) {
      const auto it = chosen.find(i);
      if (it == chosen.end()) {
        *nodes.Add() = std::move(*graph_->mutable_node(i));
      } else {
        const onnx::NodeProto node = graph_->node(i);  // owns the branch
        const bool then = it->second == BranchOf(graph_->node(i), true);
        KV_RETURN_IF_ERROR(Put(node, *BranchOf(node, then), &nodes));
      }
    }
    graph_->mutable_node()->Swap(&nodes);
    return absl::OkStatus();
  }

 private:
  absl::Status CollectBodies(const onnx::NodeProto& node) {
    KV_ASSIGN_OR_RETURN(const std::vector<Scope> scopes, CollectScopes(node));
    for (const Scope& scope : scopes) {
      for (std::string_view name : scope.defines) taken_.insert(std::string(name));
    }
    return absl::OkStatus();
  }

  absl::Status CollectNames(const absl::flat_hash_map<int, const onnx::GraphProto*>& chosen) {
    for (const auto& input : graph_->input()) taken_.insert(input.name());
    for (const auto& tensor : graph_->initializer()) taken_.insert(tensor.name());
    for (const auto& t : graph_->sparse_initializer()) taken_.insert(t.values().name());
    for (int i = 0; i < graph_->node_size(); ++i) {
      for (const auto& output : graph_->node(i).output()) taken_.insert(output);
      const auto it = chosen.find(i);
      if (it == chosen.end()) {
        node_names_.insert(graph_->node(i).name());
        KV_RETURN_IF_ERROR(CollectBodies(graph_->node(i)));
      } else {
        for (const auto& inner : it->second->node()) KV_RETURN_IF_ERROR(CollectBodies(inner));
      }
    }
    return absl::OkStatus();
  }

  static std::string Free(const std::string& name, absl::flat_hash_set<std::string>* taken) {
    std::string free = name;
    for (int k = 2; !taken->insert(free).second; ++k) free = fmt::format("{}_{}", name, k);
    return free;
  }

  absl::Status Put(const onnx::NodeProto& node, const onnx::GraphProto& branch,
                   google::protobuf::RepeatedPtrField<onnx::NodeProto>* nodes) {
    if (branch.output_size() != node.output_size()) {
      return absl::InvalidArgumentError(
          fmt::format("the If \"{}\" has {} outputs, and a branch of it {}", node.name(),
                      node.output_size(), branch.output_size()));
    }
    Names names;
    absl::flat_hash_set<std::string> made;
    for (const auto& inner : branch.node())
      made.insert(inner.output().begin(), inner.output().end());
    std::vector<int> copied;  // outputs that need a node of their own
    for (int k = 0; k < node.output_size(); ++k) {
      const std::string& from = branch.output(k).name();
      if (node.output(k).empty()) continue;
      if (!made.contains(from) || !names.try_emplace(from, node.output(k)).second) {
        copied.push_back(k);
      }
    }
    const auto define = [&](const std::string& name) {
      if (!name.empty() && !names.contains(name)) names[name] = Free(name, &taken_);
    };
    for (const auto& tensor : branch.initializer()) define(tensor.name());
    for (const auto& t : branch.sparse_initializer()) define(t.values().name());
    for (const auto& inner : branch.node()) {
      for (const auto& output : inner.output()) define(output);
    }
    MoveTensors(branch, names);
    for (const auto& inner : branch.node()) {
      onnx::NodeProto* copy = nodes->Add();
      *copy = inner;
      KV_RETURN_IF_ERROR(RenameValues(names, copy));
      if (!inner.name().empty()) copy->set_name(Free(inner.name(), &node_names_));
    }
    for (int k : copied) {
      onnx::NodeProto* copy = nodes->Add();
      copy->set_op_type("Identity");
      const std::string& from = branch.output(k).name();
      const auto it = names.find(from);
      copy->add_input(it == names.end() ? from : it->second);
      copy->add_output(node.output(k));
    }
    return absl::OkStatus();
  }

  void MoveTensors(const onnx::GraphProto& branch, const Names& names) {
    for (const auto& tensor : branch.initializer()) {
      onnx::TensorProto* copy = graph_->add_initializer();
      *copy = tensor;
      copy->set_name(names.at(tensor.name()));
    }
    for (const auto& tensor : branch.sparse_initializer()) {
      onnx::SparseTensorProto* copy = graph_->add_sparse_initializer();
      *copy = tensor;
      copy->mutable_values()->set_name(names.at(tensor.values().name()));
    }
    absl::flat_hash_set<std::string> told;
    for (const auto& info : graph_->value_info()) told.insert(info.name());
    for (const auto& info : graph_->output()) told.insert(info.name());
    for (const auto& info : branch.value_info()) {
      const auto it = names.find(info.name());
      if (it == names.end() || !told.insert(it->second).second) continue;
      onnx::ValueInfoProto* copy = graph_->add_value_info();
      *copy = info;
      copy->set_name(it->second);
    }
  }

  onnx::GraphProto* graph_;
  absl::flat_hash_set<std::string> taken_;       // names of values
  absl::flat_hash_set<std::string> node_names_;  // of the graph's own nodes
};

}  // namespace

bool GivesNothing(const onnx::NodeProto& node, int output) {
  const auto empty = [](const onnx::TensorProto& tensor) {
    return std::find(tensor.dims().begin(), tensor.dims().end(), 0) != tensor.dims().end();
  };
  for (const bool condition : {true, false}) {
    const onnx::GraphProto* branch = BranchOf(node, condition);
    if (branch == nullptr || output >= branch->output_size()) continue;
    std::string name = branch->output(output).name();
    for (const auto& inner : branch->node()) {  // looks through one Identity at most
      if (inner.output_size() == 1 && inner.output(0) == name && inner.op_type() == "Identity") {
        name = inner.input(0);
        break;
      }
    }
    for (const auto& tensor : branch->initializer()) {
      if (tensor.name() == name && empty(tensor)) return true;
    }
    for (const auto& inner : branch->node()) {
      if (inner.output_size() != 1 || inner.output(0) != name || inner.op_type() != "Constant") {
        continue;
      }
      const auto* value = FindAttribute(inner, "value");
      if (value != nullptr && empty(value->t())) return true;
    }
  }
  return false;
}

absl::StatusOr<onnx::ModelProto> InlineBranches(const onnx::ModelProto& model,
                                                const ConditionFn& truth) {
  auto result = std::make_shared<onnx::ModelProto>(model);
  for (;;) {
    absl::flat_hash_map<int, const onnx::GraphProto*> chosen;
    {
      KV_ASSIGN_OR_RETURN(const Graph graph, Graph::Build(result));
      sym::Forms forms(graph);
      for (int i = 0; i < result->graph().node_size(); ++i) {
        const onnx::NodeProto& node = result->graph().node(i);
        const bool standard = node.domain().empty() || node.domain() == "ai.onnx";
        if (node.op_type() != "If" || !standard || node.input_size() != 1) continue;
        const auto known = truth(forms, graph.Find(node.input(0)));
        if (!known) continue;
        if (const auto* branch = BranchOf(node, *known)) chosen[i] = branch;
      }
    }
    if (chosen.empty()) return std::move(*result);
    KV_RETURN_IF_ERROR(Inliner(result->mutable_graph()).Run(chosen));
  }
}

}  // namespace kvlift
