#include "proof/lower/inline_branch.h"

#include "absl/container/flat_hash_map.h"
#include "ir/graph.h"
#include "ir/operators/operator_changes.h"
#include "ir/subgraphs.h"

namespace kvlift {

using onnx::GraphProto;
using onnx::NodeProto;

bool IsIf(const NodeProto& node) {
  return node.op_type() == "If" && IsDefaultDomain(node.domain());
}

BranchInliner::BranchInliner(const GraphProto& graph) { AddNamesOf(graph); }

void BranchInliner::AddNamesOf(const GraphProto& graph) {
  for (const auto& input : graph.input()) taken_.insert(input.name());
  for (const auto& tensor : graph.initializer()) taken_.insert(tensor.name());
  for (const NodeProto& node : graph.node()) {
    taken_.insert(node.output().begin(), node.output().end());
  }
}

GraphProto BranchInliner::WithOwnNames(const NodeProto& node, GraphProto branch,
                                       Outputs outputs) const {
  absl::flat_hash_set<std::string> given;
  for (int k = 0; outputs == Outputs::kMayKeepNames && k < node.output_size(); ++k) {
    if (node.output(k) == branch.output(k).name()) given.insert(node.output(k));
  }
  absl::flat_hash_map<std::string, std::string> renamed;
  const auto rename = [&](std::string* name) {
    if (const auto it = renamed.find(*name); it != renamed.end()) *name = it->second;
  };
  const auto define = [&](std::string* name) {
    if (name->empty() || given.contains(*name) || !taken_.contains(*name)) return;
    std::string own = *name + "/in the branch";
    while (taken_.contains(own)) own += '\'';
    renamed[*name] = own;
    *name = own;
  };
  for (auto& tensor : *branch.mutable_initializer()) define(tensor.mutable_name());
  for (NodeProto& inner : *branch.mutable_node()) {
    for (std::string& input : *inner.mutable_input()) rename(&input);
    for (std::string& output : *inner.mutable_output()) define(&output);
  }
  for (auto& output : *branch.mutable_output()) rename(output.mutable_name());
  return branch;
}

absl::StatusOr<std::vector<std::string>> BranchInliner::Inline(const NodeProto& node, bool taken,
                                                               Outputs outputs, GraphProto* graph) {
  const onnx::AttributeProto* attribute =
      FindAttribute(node, taken ? "then_branch" : "else_branch");
  if (attribute == nullptr || attribute->g().output_size() < node.output_size()) {
    return absl::UnimplementedError("a branch is not as it must be");
  }
  const GraphProto branch = WithOwnNames(node, attribute->g(), outputs);
  for (const auto& tensor : branch.initializer()) *graph->add_initializer() = tensor;
  for (const NodeProto& inner : branch.node()) {
    if (HasBody(inner)) return absl::UnimplementedError("a branch has bodies of its own");
    *graph->add_node() = inner;
  }
  AddNamesOf(branch);
  std::vector<std::string> given;
  for (const auto& output : branch.output()) given.push_back(output.name());
  return given;
}

}  // namespace kvlift
