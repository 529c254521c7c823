#include "ir/graph.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "ir/graph_builder.h"

namespace kvlift {

absl::StatusOr<Graph> Graph::Build(std::shared_ptr<const onnx::ModelProto> model) {
  if (model == nullptr) return absl::InvalidArgumentError("no model");
  return GraphBuilder(std::move(model)).Build();
}

std::string Graph::NodeName(NodeId n) const {
  const onnx::NodeProto& proto = node(n);
  if (!proto.name().empty()) return proto.name();
  for (const auto& output : proto.output()) {
    if (!output.empty()) return output;
  }
  return absl::StrCat(proto.op_type(), "#", n);
}

bool Graph::Is(NodeId n, std::string_view op_type) const {
  const onnx::NodeProto& proto = node(n);
  return proto.op_type() == op_type && (proto.domain().empty() || proto.domain() == "ai.onnx");
}

ValueId Graph::Find(std::string_view name) const {
  const auto it = by_name_.find(absl::string_view(name.data(), name.size()));
  return it == by_name_.end() ? kNoValue : it->second;
}

bool Graph::is_graph_output(ValueId v) const {
  const auto& uses = values_[v].uses;
  return std::any_of(uses.begin(), uses.end(),
                     [](const Use& use) { return use.kind == Use::Kind::kGraphOutput; });
}

const onnx::AttributeProto* FindAttribute(const onnx::NodeProto& node, std::string_view name) {
  for (const auto& attribute : node.attribute()) {
    if (attribute.name() == name) return &attribute;
  }
  return nullptr;
}

int64_t IntAttribute(const onnx::NodeProto& node, std::string_view name, int64_t fallback) {
  const auto* attribute = FindAttribute(node, name);
  return attribute != nullptr && attribute->has_i() ? attribute->i() : fallback;
}

float FloatAttribute(const onnx::NodeProto& node, std::string_view name, float fallback) {
  const auto* attribute = FindAttribute(node, name);
  return attribute != nullptr && attribute->has_f() ? attribute->f() : fallback;
}

std::string StringAttribute(const onnx::NodeProto& node, std::string_view name,
                            std::string_view fallback) {
  const auto* attribute = FindAttribute(node, name);
  return attribute != nullptr && attribute->has_s() ? attribute->s() : std::string(fallback);
}

std::vector<int64_t> IntsAttribute(const onnx::NodeProto& node, std::string_view name) {
  const auto* attribute = FindAttribute(node, name);
  if (attribute == nullptr) return {};
  return {attribute->ints().begin(), attribute->ints().end()};
}

int32_t TypeOfAllCasts(const Graph& graph, ValueId v) {
  int32_t type = 0;
  for (const Use& use : graph.uses(v)) {
    if (use.kind != Use::Kind::kNodeInput) return 0;
    if (graph.Is(use.node, "Shape") || graph.Is(use.node, "Size")) continue;
    int32_t to = 0;
    if (graph.Is(use.node, "Identity")) to = TypeOfAllCasts(graph, graph.outputs(use.node)[0]);
    if (graph.Is(use.node, "Cast")) {
      to = static_cast<int32_t>(IntAttribute(graph.node(use.node), "to", 0));
    }
    if (to == 0 || (type != 0 && to != type)) return 0;
    type = to;
  }
  return type;
}

ValueId BehindIdentity(const Graph& graph, ValueId v) {
  while (v != kNoValue) {
    const NodeId n = graph.producer(v);
    if (n == kNoNode || !graph.Is(n, "Identity") || graph.inputs(n).empty()) return v;
    v = graph.inputs(n)[0];
  }
  return v;
}

const onnx::TensorProto* ConstantBehind(const Graph& graph, ValueId v) {
  v = BehindIdentity(graph, v);
  return v == kNoValue ? nullptr : graph.constant(v);
}

bool IsOfConstants(const Graph& graph, ValueId v) {
  constexpr size_t kMostValues = 32;
  std::vector<ValueId> open = {v};
  for (size_t k = 0; k < open.size(); ++k) {
    if (open[k] == kNoValue || graph.constant(open[k]) != nullptr) continue;
    const NodeId n = graph.producer(open[k]);
    if (n == kNoNode || open.size() > kMostValues) return false;
    const auto inputs = graph.inputs(n);
    open.insert(open.end(), inputs.begin(), inputs.end());
  }
  return true;
}

}  // namespace kvlift
