#include "ir/graph_builder.h"

#include <functional>
#include <optional>
#include <queue>
#include <utility>

#include "base/coded.h"
#include "base/escape.h"
#include "base/status.h"
#include "fmt/format.h"
#include "ir/arity.h"
#include "ir/constant_node.h"
#include "ir/subgraphs.h"

namespace kvlift {
namespace {

using onnx::NodeProto;
using onnx::TensorProto;

// The first IR version in which an initialiser need not be an input, too. From there on, an input
// of the same name lets the host override the initialiser.
constexpr int64_t kFirstIrWithOverridableInitializers = 4;

template <typename... Args>
absl::Status Bad(std::string_view code, fmt::format_string<Args...> format, Args&&... args) {
  return Coded(code, absl::InvalidArgumentError(fmt::format(format, std::forward<Args>(args)...)));
}

std::string Describe(const NodeProto& node) {
  if (!node.name().empty()) {
    return fmt::format("node \"{}\" ({})", EscapeTerminal(node.name()),
                       EscapeTerminal(node.op_type()));
  }
  const std::string output = node.output().empty() ? std::string() : node.output(0);
  return fmt::format("the {} node of \"{}\"", EscapeTerminal(node.op_type()),
                     EscapeTerminal(output));
}

TensorType TypeOf(int32_t elem_type, const google::protobuf::RepeatedField<int64_t>& dims) {
  TensorType type;
  type.elem_type = elem_type;
  type.shape.emplace();
  for (int64_t dim : dims) type.shape->push_back({dim, {}});
  return type;
}

// Says that the model imports no operators of ONNX. Models without nodes of them may omit the
// import.
absl::Status NoDefaultDomain(const onnx::GraphProto& main) {
  std::vector<const onnx::GraphProto*> graphs = {&main};
  while (!graphs.empty()) {
    const onnx::GraphProto& graph = *graphs.back();
    graphs.pop_back();
    for (const NodeProto& node : graph.node()) {
      if (node.domain().empty() || node.domain() == "ai.onnx") {
        return Bad("KV023", "the model does not import the default domain, which {} is of",
                   Describe(node));
      }
      for (const auto& attribute : node.attribute()) {
        if (attribute.has_g()) graphs.push_back(&attribute.g());
        for (const auto& body : attribute.graphs()) graphs.push_back(&body);
      }
    }
  }
  return Bad("KV023",
             "the model does not import the default domain; ONNX allows that, since no node is of "
             "that domain, but kvlift needs the import");
}

// Fills in what `type` leaves open. If a value is declared more than once, the first declaration
// that has the information counts.
void Complete(TensorType& type, const TensorType& declared) {
  if (type.elem_type == 0) type.elem_type = declared.elem_type;
  if (!type.shape) type.shape = declared.shape;
}

}  // namespace

GraphBuilder::GraphBuilder(std::shared_ptr<const onnx::ModelProto> model) {
  graph_.model_ = std::move(model);
}

absl::StatusOr<Graph> GraphBuilder::Build() {
  if (!graph_.model_->has_graph()) return Bad("KV002", "the model has no graph");
  KV_RETURN_IF_ERROR(FindOpset());
  KV_RETURN_IF_ERROR(CheckArity(*graph_.model_));
  KV_RETURN_IF_ERROR(AddInputsAndInitializers());
  KV_RETURN_IF_ERROR(AddNodeOutputs());
  KV_RETURN_IF_ERROR(ResolveOperands());
  KV_RETURN_IF_ERROR(AddGraphOutputs());
  AddDeclaredTypes();
  KV_RETURN_IF_ERROR(SortNodes());
  AddUses();
  return std::move(graph_);
}

absl::Status GraphBuilder::FindOpset() {
  std::optional<int64_t> version;
  for (const auto& import : graph_.model_->opset_import()) {
    if (!import.domain().empty() && import.domain() != "ai.onnx") continue;
    if (version && *version != import.version()) {
      return Bad("KV023", "the model imports the default domain twice, in versions {} and {}",
                 *version, import.version());
    }
    version = import.version();
  }
  if (!version) return NoDefaultDomain(graph_.proto());
  graph_.opset_ = *version;
  return absl::OkStatus();
}

ValueId GraphBuilder::NewValue(const std::string& name) {
  const auto id = static_cast<ValueId>(graph_.values_.size());
  if (!graph_.by_name_.try_emplace(name, id).second) return kNoValue;
  graph_.values_.emplace_back().name = name;
  return id;
}

absl::Status GraphBuilder::AddInputsAndInitializers() {
  const onnx::GraphProto& proto = graph_.proto();
  for (const auto& input : proto.input()) {
    if (input.name().empty()) return Bad("KV024", "a graph input has no name");
    const ValueId v = NewValue(input.name());
    if (v == kNoValue) {
      return Bad("KV024", "the graph has two inputs named \"{}\"", EscapeTerminal(input.name()));
    }
    graph_.values_[v].graph_input = true;
    graph_.values_[v].type = TensorType::From(input.type());
  }
  const bool overridable = graph_.model_->ir_version() >= kFirstIrWithOverridableInitializers;
  absl::flat_hash_set<std::string_view> initialized;
  const auto add = [&](const std::string& name, const TensorType& type, const TensorProto* data) {
    if (name.empty()) return Bad("KV024", "an initializer has no name");
    if (!initialized.insert(name).second) {
      return Bad("KV024", "the graph has two initializers named \"{}\"", EscapeTerminal(name));
    }
    ValueId v = graph_.Find(name);
    if (v == kNoValue) v = NewValue(name);
    auto& value = graph_.values_[v];
    Complete(value.type, type);
    if (!value.graph_input || !overridable) {
      value.graph_input = false;
      value.constant = data;
    }
    return absl::OkStatus();
  };
  for (const auto& tensor : proto.initializer()) {
    KV_RETURN_IF_ERROR(add(tensor.name(), TypeOf(tensor.data_type(), tensor.dims()), &tensor));
  }
  for (const auto& tensor : proto.sparse_initializer()) {
    const TensorProto& values = tensor.values();
    KV_RETURN_IF_ERROR(add(values.name(), TypeOf(values.data_type(), tensor.dims()), nullptr));
  }
  for (const auto& input : proto.input()) {
    if (!initialized.contains(input.name())) {
      graph_.graph_inputs_.push_back(graph_.Find(input.name()));
    }
  }
  return absl::OkStatus();
}

absl::Status GraphBuilder::AddNodeOutputs() {
  for (const NodeProto& node : graph_.proto().node()) {
    const auto index = static_cast<NodeId>(pending_.size());
    Pending& pending = pending_.emplace_back();
    pending.entry.proto = &node;
    for (int i = 0; i < node.output_size(); ++i) {
      const std::string& name = node.output(i);
      ValueId v = kNoValue;
      if (!name.empty()) {
        v = NewValue(name);
        if (v == kNoValue) {
          return Bad("KV024", "\"{}\" is defined twice, the second time by {}",
                     EscapeTerminal(name), Describe(node));
        }
        graph_.values_[v].producer = index;
        graph_.values_[v].output_index = i;
      }
      pending.entry.outputs.push_back(v);
    }
    const bool is_constant =
        node.op_type() == "Constant" && (node.domain().empty() || node.domain() == "ai.onnx");
    if (is_constant && !pending.entry.outputs.empty() && pending.entry.outputs[0] != kNoValue) {
      KV_RETURN_IF_ERROR(ResolveConstant(pending.entry.outputs[0], node));
    }
  }
  return absl::OkStatus();
}

absl::Status GraphBuilder::ResolveConstant(ValueId value, const NodeProto& node) {
  KV_ASSIGN_OR_RETURN(ConstantTensor constant, ConstantNodeTensor(node));
  if (constant.owned != nullptr) graph_.owned_constants_.push_back(std::move(constant.owned));
  graph_.values_[value].constant = constant.tensor;
  if (constant.tensor != nullptr) {
    graph_.values_[value].type = TypeOf(constant.tensor->data_type(), constant.tensor->dims());
  }
  return absl::OkStatus();
}

absl::StatusOr<ValueId> GraphBuilder::Resolve(std::string_view name,
                                              const NodeProto& reader) const {
  const ValueId v = graph_.Find(name);
  if (v != kNoValue) return v;
  return Bad("KV024", "{} reads \"{}\", which nothing defines", Describe(reader),
             EscapeTerminal(name));
}

absl::Status GraphBuilder::ResolveOperands() {
  for (Pending& pending : pending_) {
    const NodeProto& node = *pending.entry.proto;
    for (const std::string& name : node.input()) {
      ValueId v = kNoValue;
      if (!name.empty()) {
        KV_ASSIGN_OR_RETURN(v, Resolve(name, node));
      }
      pending.entry.inputs.push_back(v);
    }
    const auto scopes = CollectScopes(node);
    if (!scopes.ok()) {
      return Prefixed("in " + Describe(node), scopes.status());
    }
    for (std::string_view name : CapturedNames(*scopes)) {
      KV_ASSIGN_OR_RETURN(const ValueId v, Resolve(name, node));
      pending.entry.captures.push_back(v);
    }
  }
  return absl::OkStatus();
}

absl::Status GraphBuilder::AddGraphOutputs() {
  absl::flat_hash_set<ValueId> seen;
  for (const auto& output : graph_.proto().output()) {
    const ValueId v = graph_.Find(output.name());
    if (v == kNoValue) {
      return Bad("KV024", "nothing defines the graph output \"{}\"", EscapeTerminal(output.name()));
    }
    if (!seen.insert(v).second) {
      return Bad("KV024", "the graph has two outputs named \"{}\"", EscapeTerminal(output.name()));
    }
    graph_.graph_outputs_.push_back(v);
  }
  return absl::OkStatus();
}

void GraphBuilder::AddDeclaredTypes() {
  const auto complete = [&](const onnx::ValueInfoProto& info) {
    const ValueId v = graph_.Find(info.name());
    if (v != kNoValue) Complete(graph_.values_[v].type, TensorType::From(info.type()));
  };
  for (const auto& info : graph_.proto().output()) complete(info);
  for (const auto& info : graph_.proto().value_info()) complete(info);
}

absl::Status GraphBuilder::SortNodes() {
  const auto num_nodes = static_cast<int>(pending_.size());
  for (int i = 0; i < num_nodes; ++i) {
    const auto wait = [&](ValueId v) {
      if (v == kNoValue || graph_.values_[v].producer == kNoNode) return;
      pending_[graph_.values_[v].producer].readers.push_back(i);
      ++pending_[i].waits_for;
    };
    for (ValueId v : pending_[i].entry.inputs) wait(v);
    for (ValueId v : pending_[i].entry.captures) wait(v);
  }
  std::priority_queue<int, std::vector<int>, std::greater<>> ready;
  for (int i = 0; i < num_nodes; ++i) {
    if (pending_[i].waits_for == 0) ready.push(i);
  }
  std::vector<bool> done(num_nodes, false);
  while (!ready.empty()) {
    const int i = ready.top();
    ready.pop();
    done[i] = true;
    const auto id = static_cast<NodeId>(graph_.nodes_.size());
    for (ValueId v : pending_[i].entry.outputs) {
      if (v != kNoValue) graph_.values_[v].producer = id;
    }
    graph_.nodes_.push_back(std::move(pending_[i].entry));
    for (int reader : pending_[i].readers) {
      if (--pending_[reader].waits_for == 0) ready.push(reader);
    }
  }
  return graph_.num_nodes() == num_nodes ? absl::OkStatus() : CycleError(done);
}

absl::Status GraphBuilder::CycleError(const std::vector<bool>& done) const {
  // Every node that is left waits for another one that is left. A walk from node to awaited node
  // therefore comes back to a node that it has passed, and that node is on a cycle.
  std::vector<int> waits_for(pending_.size(), -1);
  int at = -1;
  for (int i = 0; i < static_cast<int>(pending_.size()); ++i) {
    if (done[i]) continue;
    at = i;
    for (int reader : pending_[i].readers) {
      if (!done[reader]) waits_for[reader] = i;
    }
  }
  std::vector<bool> seen(pending_.size(), false);
  while (!seen[at]) {
    seen[at] = true;
    at = waits_for[at];
  }
  return Bad("KV025", "{} depends on its own output", Describe(*pending_[at].entry.proto));
}

void GraphBuilder::AddUses() {
  for (NodeId n = 0; n < graph_.num_nodes(); ++n) {
    const auto& entry = graph_.nodes_[n];
    for (int i = 0; i < static_cast<int>(entry.inputs.size()); ++i) {
      if (entry.inputs[i] == kNoValue) continue;
      graph_.values_[entry.inputs[i]].uses.push_back({Use::Kind::kNodeInput, n, i});
    }
    for (ValueId v : entry.captures) {
      graph_.values_[v].uses.push_back({Use::Kind::kCapture, n, 0});
    }
  }
  for (int i = 0; i < static_cast<int>(graph_.graph_outputs_.size()); ++i) {
    graph_.values_[graph_.graph_outputs_[i]].uses.push_back({Use::Kind::kGraphOutput, kNoNode, i});
  }
}

}  // namespace kvlift
