#include "ir/subgraphs.h"

#include <algorithm>

#include "base/coded.h"
#include "base/escape.h"
#include "base/status.h"
#include "fmt/format.h"
#include "ir/graph.h"

namespace kvlift {
namespace {

void AppendBodies(const onnx::NodeProto& node, int parent, int depth, std::vector<Scope>& scopes) {
  for (const auto& attribute : node.attribute()) {
    if (attribute.has_g()) scopes.push_back({&attribute.g(), parent, depth, {}});
    for (const auto& graph : attribute.graphs()) scopes.push_back({&graph, parent, depth, {}});
  }
}

absl::Status Define(Scope& scope, std::string_view name) {
  if (name.empty() || scope.defines.insert(name).second) return absl::OkStatus();
  return Coded("KV024", absl::InvalidArgumentError(fmt::format(
                            "the body \"{}\" defines \"{}\" twice",
                            EscapeTerminal(scope.graph->name()), EscapeTerminal(name))));
}

absl::Status CollectDefinitions(Scope& scope) {
  const onnx::GraphProto& graph = *scope.graph;
  for (const auto& input : graph.input()) KV_RETURN_IF_ERROR(Define(scope, input.name()));
  // An initialiser may have the name of an input, whose default it is: both names are one value.
  for (const auto& tensor : graph.initializer()) scope.defines.insert(tensor.name());
  for (const auto& tensor : graph.sparse_initializer()) {
    scope.defines.insert(tensor.values().name());
  }
  for (const auto& node : graph.node()) {
    for (const auto& output : node.output()) KV_RETURN_IF_ERROR(Define(scope, output));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::vector<Scope>> CollectScopes(const onnx::NodeProto& node) {
  std::vector<Scope> scopes;
  AppendBodies(node, -1, 1, scopes);
  for (size_t i = 0; i < scopes.size(); ++i) {
    KV_RETURN_IF_ERROR(CollectDefinitions(scopes[i]));
    const int depth = scopes[i].depth + 1;
    for (const auto& inner : scopes[i].graph->node()) {
      AppendBodies(inner, static_cast<int>(i), depth, scopes);
    }
  }
  return scopes;
}

bool HasBody(const onnx::NodeProto& node) {
  return std::any_of(
      node.attribute().begin(), node.attribute().end(),
      [](const onnx::AttributeProto& a) { return a.has_g() || a.graphs_size() > 0; });
}

absl::flat_hash_set<std::string> NamesIn(const onnx::GraphProto& graph) {
  absl::flat_hash_set<std::string> names;
  std::vector<const onnx::GraphProto*> open = {&graph};
  while (!open.empty()) {
    const onnx::GraphProto& next = *open.back();
    open.pop_back();
    for (const auto& tensor : next.initializer()) names.insert(tensor.name());
    for (const auto& tensor : next.sparse_initializer()) names.insert(tensor.values().name());
    for (const auto& input : next.input()) names.insert(input.name());
    for (const onnx::NodeProto& node : next.node()) {
      names.insert(node.output().begin(), node.output().end());
      for (const onnx::AttributeProto& a : node.attribute()) {
        if (a.has_g()) open.push_back(&a.g());
        for (const onnx::GraphProto& body : a.graphs()) open.push_back(&body);
      }
    }
  }
  return names;
}

bool Defines(const std::vector<Scope>& scopes, int scope, std::string_view name) {
  for (; scope >= 0; scope = scopes[scope].parent) {
    if (scopes[scope].defines.contains(name)) return true;
  }
  return false;
}

std::vector<std::string_view> CapturedNames(const std::vector<Scope>& scopes) {
  std::vector<std::string_view> names;
  absl::flat_hash_set<std::string_view> seen;
  for (int i = 0; i < static_cast<int>(scopes.size()); ++i) {
    const auto read = [&](std::string_view name) {
      if (!name.empty() && !Defines(scopes, i, name) && seen.insert(name).second) {
        names.push_back(name);
      }
    };
    for (const auto& node : scopes[i].graph->node()) {
      for (const auto& input : node.input()) read(input);
    }
    for (const auto& output : scopes[i].graph->output()) read(output.name());
  }
  return names;
}

absl::Status RenameValues(const absl::flat_hash_map<std::string, std::string>& names,
                          onnx::NodeProto* node) {
  const auto rename = [&](std::string* name) {
    if (const auto it = names.find(*name); it != names.end()) *name = it->second;
  };
  for (auto& input : *node->mutable_input()) rename(&input);
  for (auto& output : *node->mutable_output()) rename(&output);
  if (!HasBody(*node)) return absl::OkStatus();
  // Whether a body defines a name is decided by the names before the renaming.
  const onnx::NodeProto before = *node;
  KV_ASSIGN_OR_RETURN(const std::vector<Scope> old, CollectScopes(before));
  KV_ASSIGN_OR_RETURN(const std::vector<Scope> scopes, CollectScopes(*node));
  for (int s = 0; s < static_cast<int>(scopes.size()); ++s) {
    // `node` is not const, so its bodies are not const either.
    auto& body = const_cast<onnx::GraphProto&>(*scopes[s].graph);
    const auto rename_free = [&](std::string* name) {
      if (!Defines(old, s, *name)) rename(name);
    };
    for (auto& inner : *body.mutable_node()) {
      for (auto& input : *inner.mutable_input()) rename_free(&input);
    }
    for (auto& output : *body.mutable_output()) rename_free(output.mutable_name());
  }
  return absl::OkStatus();
}

const onnx::TensorProto* ConstantOfBranch(const onnx::NodeProto& node, std::string_view branch,
                                          int k) {
  const onnx::AttributeProto* body = FindAttribute(node, branch);
  if (body == nullptr || k >= body->g().output_size()) return nullptr;
  const std::string& name = body->g().output(k).name();
  for (const onnx::TensorProto& tensor : body->g().initializer()) {
    if (tensor.name() == name) return &tensor;
  }
  for (const onnx::NodeProto& inner : body->g().node()) {
    if (inner.op_type() != "Constant" || inner.output_size() != 1 || inner.output(0) != name) {
      continue;
    }
    const onnx::AttributeProto* value = FindAttribute(inner, "value");
    return value == nullptr ? nullptr : &value->t();
  }
  return nullptr;
}

}  // namespace kvlift
