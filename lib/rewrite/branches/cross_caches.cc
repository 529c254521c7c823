#include "rewrite/branches/cross_caches.h"

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "base/status.h"
#include "fmt/format.h"
#include "ir/node_builder.h"
#include "ir/patch.h"
#include "ir/subgraphs.h"
#include "sym/emit/emit.h"

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

// Returns the branch of later calls: it gives the inputs as pasts, and empty constants as presents.
onnx::GraphProto LaterBody(const Graph& later, absl::Span<const CrossAttentionCache> crossings) {
  onnx::GraphProto body;
  body.set_name("later");
  for (const CrossAttentionCache& c : crossings) {
    const int32_t type = later.type(later.Find(c.past)).elem_type;
    const std::string used = kScope + c.past + "/later";
    AddIdentity(c.past, used, &body);
    *body.add_output() = Typed(used, type);
    const std::string given = kScope + c.present + "/later";
    onnx::TensorProto* empty = body.add_initializer();
    *empty = *EmptyConstant(later, later.Find(c.present));
    empty->set_name(given + "/none");
    AddIdentity(empty->name(), given, &body);
    *body.add_output() = Typed(given, type);
  }
  return body;
}

// Builds the branch of the first call from nodes of the graph of both calls and from new nodes.
class FirstBody {
 public:
  FirstBody(sym::Forms& both, std::string prefix)
      : forms_(both), graph_(both.graph()), prefix_(std::move(prefix)), nodes_(graph_) {
    body_.set_name("first");
    nodes_.set_scope("cross");
  }

  absl::StatusOr<onnx::GraphProto> Run(absl::Span<const CrossAttentionCache> crossings) {
    std::vector<std::string> values;
    for (const CrossAttentionCache& c : crossings) values.push_back(Value(graph_.Find(c.first)));
    CopyNodesBehind();
    KV_RETURN_IF_ERROR(AddNewNodes(&values));
    for (size_t k = 0; k < crossings.size(); ++k) {
      const int32_t type = graph_.type(graph_.Find(crossings[k].past)).elem_type;
      for (const std::string& name : {crossings[k].past, crossings[k].present}) {
        const std::string output = kScope + name + "/first";
        AddIdentity(values[k], output, &body_);
        *body_.add_output() = Typed(output, type);
      }
    }
    return std::move(body_);
  }

 private:
  // Makes the value from its form if that is possible: its shape is then computed from graph inputs
  // instead of other values of the source.
  std::string Value(ValueId v) {
    const sym::Form form = forms_.Of(v);
    if (form.known_rank && !form.opaque) {
      sym::Emitter emitter(forms_, nodes_);
      const auto drawn =
          emitter.Tensor({form.element, form.shape, forms_.ElementType(v), -1, "first"});
      if (drawn.ok()) {
        for (ValueId source : sym::SourcesOf(form.element)) Visit(source);
        return *drawn;
      }
    }
    Visit(v);
    return graph_.name(v);
  }

  void Visit(ValueId v) {
    if (v != kNoValue && seen_.insert(v).second) stack_.push_back(v);
  }

  void CopyNodesBehind() {
    absl::flat_hash_set<std::string> tensors;
    std::vector<NodeId> nodes;
    while (!stack_.empty()) {
      const ValueId v = stack_.back();
      stack_.pop_back();
      const NodeId n = graph_.producer(v);
      if (n == kNoNode) {
        if (graph_.name(v).rfind(prefix_, 0) == 0) tensors.insert(graph_.name(v));
        continue;
      }
      nodes.push_back(n);
      for (ValueId input : graph_.inputs(n)) Visit(input);
      for (ValueId input : graph_.captures(n)) Visit(input);
    }
    std::sort(nodes.begin(), nodes.end());
    nodes.erase(std::unique(nodes.begin(), nodes.end()), nodes.end());
    for (NodeId n : nodes) *body_.add_node() = graph_.node(n);
    for (const auto& tensor : graph_.proto().initializer()) {
      if (tensors.contains(tensor.name())) *body_.add_initializer() = tensor;
    }
  }

  // Gives new nodes a prefix, since their names are only made to be unique in the main graph.
  absl::Status AddNewNodes(std::vector<std::string>* values) {
    absl::flat_hash_map<std::string, std::string> names;
    std::vector<onnx::NodeProto> nodes = nodes_.TakeNodes();
    std::vector<onnx::TensorProto> tensors = nodes_.TakeInitializers();
    for (const auto& tensor : tensors) names[tensor.name()] = kScope + tensor.name();
    for (const auto& node : nodes) names[node.output(0)] = kScope + node.output(0);
    for (onnx::TensorProto& tensor : tensors) {
      tensor.set_name(names.at(tensor.name()));
      *body_.add_initializer() = std::move(tensor);
    }
    for (onnx::NodeProto& node : nodes) {
      KV_RETURN_IF_ERROR(RenameValues(names, &node));
      *body_.add_node() = std::move(node);
    }
    for (std::string& value : *values) {
      if (const auto it = names.find(value); it != names.end()) value = it->second;
    }
    return absl::OkStatus();
  }

  sym::Forms& forms_;
  const Graph& graph_;
  std::string prefix_;
  NodeBuilder nodes_;
  onnx::GraphProto body_;
  std::vector<ValueId> stack_;
  absl::flat_hash_set<ValueId> seen_;
};

}  // namespace

const onnx::TensorProto* EmptyConstant(const Graph& graph, ValueId v) {
  for (NodeId n = graph.producer(v); n != kNoNode && graph.Is(n, "Identity");
       n = graph.producer(v)) {
    v = graph.inputs(n)[0];
  }
  const onnx::TensorProto* tensor = graph.constant(v);
  const bool empty = tensor != nullptr && std::find(tensor->dims().begin(), tensor->dims().end(),
                                                    0) != tensor->dims().end();
  return empty ? tensor : nullptr;
}

absl::StatusOr<onnx::ModelProto> KeepCrossAttentionCaches(
    const onnx::ModelProto& later, sym::Forms& both, const std::string& prefix,
    const std::string& condition, bool truth, absl::Span<const CrossAttentionCache> crossings) {
  onnx::ModelProto model = later;
  for (const CrossAttentionCache& c : crossings) {
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
  for (const CrossAttentionCache& c : crossings) {
    node.add_output(kScope + c.past);
    node.add_output(c.present);
    patch.replace_uses[c.past] = kScope + c.past;
    patch.remove_nodes.insert(graph.producer(graph.Find(c.present)));
  }
  KV_ASSIGN_OR_RETURN(onnx::GraphProto first, FirstBody(both, prefix).Run(crossings));
  for (const bool then : {true, false}) {
    onnx::AttributeProto* branch = node.add_attribute();
    branch->set_name(then ? "then_branch" : "else_branch");
    branch->set_type(onnx::AttributeProto::GRAPH);
    *branch->mutable_g() = then == truth ? LaterBody(graph, crossings) : first;
  }
  patch.new_nodes.push_back(std::move(node));
  KV_ASSIGN_OR_RETURN(const Graph typed,
                      Graph::Build(std::make_shared<const onnx::ModelProto>(std::move(model))));
  return Apply(typed, patch);
}

}  // namespace kvlift
