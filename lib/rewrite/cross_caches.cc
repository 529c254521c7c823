#include "rewrite/cross_caches.h"

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "base/status.h"
#include "fmt/format.h"
#include "ir/patch.h"

namespace kvlift {
namespace {

constexpr char kScope[] = "/kvlift/cross/";

void AddIdentity(const std::string& from, const std::string& to, onnx::GraphProto* body) {
  onnx::NodeProto* node = body->add_node();
  node->set_op_type("Identity");
  node->set_name(to);
  node->add_input(from);
  node->add_output(to);
}

onnx::ValueInfoProto Typed(const std::string& name, int32_t elem_type) {
  onnx::ValueInfoProto info;
  info.set_name(name);
  info.mutable_type()->mutable_tensor_type()->set_elem_type(elem_type);
  return info;
}

// What later calls take and give.
onnx::GraphProto LaterBody(const Graph& later, absl::Span<const Crossing> crossings) {
  onnx::GraphProto body;
  body.set_name("later");
  for (const Crossing& c : crossings) {
    const int32_t type = later.type(later.Find(c.past)).elem_type;
    const std::string used = kScope + c.past + "/later";
    AddIdentity(c.past, used, &body);
    *body.add_output() = Typed(used, type);
    const std::string given = kScope + c.present + "/later";
    onnx::TensorProto* empty = body.add_initializer();
    *empty = *later.constant(later.Find(c.present));
    empty->set_name(given + "/none");
    AddIdentity(empty->name(), given, &body);
    *body.add_output() = Typed(given, type);
  }
  return body;
}

// What the first call computes, with all that it needs of its own.
onnx::GraphProto FirstBody(const Graph& both, const std::string& prefix,
                           absl::Span<const Crossing> crossings) {
  onnx::GraphProto body;
  body.set_name("first");
  std::vector<ValueId> stack;
  absl::flat_hash_set<ValueId> seen;
  absl::flat_hash_set<std::string> tensors;
  std::vector<NodeId> nodes;
  const auto visit = [&](ValueId v) {
    if (v != kNoValue && seen.insert(v).second) stack.push_back(v);
  };
  for (const Crossing& c : crossings) visit(both.Find(c.first));
  while (!stack.empty()) {
    const ValueId v = stack.back();
    stack.pop_back();
    const NodeId n = both.producer(v);
    if (n == kNoNode) {
      if (both.name(v).rfind(prefix, 0) == 0) tensors.insert(both.name(v));
      continue;
    }
    nodes.push_back(n);
    for (ValueId input : both.inputs(n)) visit(input);
    for (ValueId input : both.captures(n)) visit(input);
  }
  std::sort(nodes.begin(), nodes.end());
  nodes.erase(std::unique(nodes.begin(), nodes.end()), nodes.end());
  for (NodeId n : nodes) *body.add_node() = both.node(n);
  for (const auto& tensor : both.proto().initializer()) {
    if (tensors.contains(tensor.name())) *body.add_initializer() = tensor;
  }
  for (const Crossing& c : crossings) {
    const int32_t type = both.type(both.Find(c.past)).elem_type;
    for (const std::string& name : {c.past, c.present}) {
      const std::string output = kScope + name + "/first";
      AddIdentity(c.first, output, &body);
      *body.add_output() = Typed(output, type);
    }
  }
  return body;
}

}  // namespace

absl::StatusOr<onnx::ModelProto> KeepCrossings(const onnx::ModelProto& later, const Graph& both,
                                               const std::string& prefix,
                                               const std::string& condition, bool truth,
                                               absl::Span<const Crossing> crossings) {
  onnx::ModelProto model = later;
  for (const Crossing& c : crossings) {
    onnx::ValueInfoProto info = Typed(kScope + c.past, 0);
    for (const auto& input : later.graph().input()) {
      if (input.name() == c.past) *info.mutable_type() = input.type();
    }
    *model.mutable_graph()->add_value_info() = std::move(info);
  }
  KV_ASSIGN_OR_RETURN(const Graph graph,
                      Graph::Build(std::make_shared<const onnx::ModelProto>(later)));
  Patch patch;
  patch.drop_value_info = false;
  onnx::NodeProto node;
  node.set_op_type("If");
  node.set_name(std::string(kScope) + "If");
  node.add_input(condition);
  for (const Crossing& c : crossings) {
    node.add_output(kScope + c.past);
    node.add_output(c.present);
    patch.replace_uses[c.past] = kScope + c.past;
    patch.remove_nodes.insert(graph.producer(graph.Find(c.present)));
  }
  for (const bool then : {true, false}) {
    onnx::AttributeProto* branch = node.add_attribute();
    branch->set_name(then ? "then_branch" : "else_branch");
    branch->set_type(onnx::AttributeProto::GRAPH);
    *branch->mutable_g() =
        then == truth ? LaterBody(graph, crossings) : FirstBody(both, prefix, crossings);
  }
  patch.new_nodes.push_back(std::move(node));
  KV_ASSIGN_OR_RETURN(const Graph typed,
                      Graph::Build(std::make_shared<const onnx::ModelProto>(std::move(model))));
  return Apply(typed, patch);
}

}  // namespace kvlift
