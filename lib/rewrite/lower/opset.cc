#include "rewrite/lower/opset.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "fmt/format.h"
#include "ir/graph.h"
#include "ir/operators/operator_changes.h"
#include "ir/tensor_data.h"
#include "onnx/defs/schema.h"
#include "onnxio/model/model.h"
#include "rewrite/branches/if_branches.h"
#include "sym/forms/forms.h"

namespace kvlift {
namespace {

using onnx::AttributeProto;
using onnx::NodeProto;
using onnx::OpSchema;

constexpr int64_t kSoftmaxChanged = 13;

const OpSchema* SchemaOf(const std::string& op_type, int64_t version) {
  return onnx::OpSchemaRegistry::Schema(op_type, static_cast<int>(version), "");
}

// Returns true for LayerNormalization below opset 17, which ONNX Runtime defines for all older
// opsets, and writes into models that it optimises. It means what opset 17 says.
bool IsRuntimesOwn(const NodeProto& node) { return node.op_type() == "LayerNormalization"; }

bool SameDefault(const OpSchema::Attribute& a, const OpSchema::Attribute& b) {
  return a.default_value.SerializeAsString() == b.default_value.SerializeAsString();
}

class OpsetRaiser {
 public:
  OpsetRaiser(onnx::ModelProto* model, int64_t from) : model_(model), from_(from) {
    for (const auto& t : model->graph().initializer()) {
      names_.insert(t.name());
      types_[t.name()] = t.data_type();
    }
    for (const auto& v : model->graph().input()) names_.insert(v.name());
  }

  // Collects ranks and element types by shape inference of the original model.
  void InferTypes(const onnx::ModelProto& original) {
    if (from_ >= kSoftmaxChanged) return;
    Collect(original.graph());
    if (const auto inferred = InferShapes(original); inferred.ok()) Collect(inferred->graph());
  }

  // Raises all nodes. Returns KV201 for the first node that cannot be raised.
  std::optional<Finding> Run() {
    std::vector<onnx::GraphProto*> stack = {model_->mutable_graph()};
    while (!stack.empty()) {
      onnx::GraphProto* graph = stack.back();
      stack.pop_back();
      CollectNames(*graph);
      main_graph_ = graph == model_->mutable_graph();
      for (NodeProto& node : *graph->mutable_node()) {
        AddBodies(&node, &stack);
        if (!IsDefaultDomain(node.domain())) continue;
        before_.clear();
        after_.clear();
        if (std::string why = Raise(&node); !why.empty()) return Refusal(node, why);
        if (!before_.empty() || !after_.empty()) added_[&node] = {before_, after_};
      }
      if (!added_.empty()) InsertAdded(graph);
    }
    return std::nullopt;
  }

  // Softmax, LogSoftmax and Hardmax nodes whose ranks are not known keep their axis until Decide,
  // since it may or may not be the last one. Their doc strings are marks until then.
  bool has_undecided() const { return !undecided_.empty(); }
  bool has_undecided_in_bodies() const { return in_bodies_; }
  bool IsUndecided(const NodeProto& node) const { return undecided_.contains(node.doc_string()); }

  // Adapts the undecided nodes. ranks: the ranks of their operands by their marks, as far as known.
  void Decide(const absl::flat_hash_map<std::string, int>& ranks) {
    std::vector<onnx::GraphProto*> stack = {model_->mutable_graph()};
    while (!stack.empty()) {
      onnx::GraphProto* graph = stack.back();
      stack.pop_back();
      for (NodeProto& node : *graph->mutable_node()) {
        AddBodies(&node, &stack);
        const auto mark = undecided_.find(node.doc_string());
        if (mark == undecided_.end()) continue;
        const auto rank = ranks.find(mark->first);
        node.set_doc_string(mark->second);
        before_.clear();
        after_.clear();
        SetSoftmaxAxis(&node, rank == ranks.end() ? -1 : rank->second);
        if (!before_.empty() || !after_.empty()) added_[&node] = {before_, after_};
      }
      if (!added_.empty()) InsertAdded(graph);
    }
  }

 private:
  struct Added {
    std::vector<NodeProto> before, after;
  };

  static void AddBodies(NodeProto* node, std::vector<onnx::GraphProto*>* bodies) {
    for (AttributeProto& attribute : *node->mutable_attribute()) {
      if (attribute.has_g()) bodies->push_back(attribute.mutable_g());
      for (auto& g : *attribute.mutable_graphs()) bodies->push_back(&g);
    }
  }

  void Collect(const onnx::GraphProto& graph) {
    for (const auto* infos : {&graph.input(), &graph.value_info(), &graph.output()}) {
      for (const auto& v : *infos) {
        ranks_[v.name()] = RankOf(v);
        types_[v.name()] = v.type().tensor_type().elem_type();
      }
    }
  }

  void CollectNames(const onnx::GraphProto& graph) {
    for (const NodeProto& node : graph.node()) {
      names_.insert(node.output().begin(), node.output().end());
      names_.insert(node.name());
      node_names_.insert(node.name());
    }
    for (const auto& t : graph.initializer()) names_.insert(t.name());
    for (const auto& v : graph.input()) names_.insert(v.name());
  }

  // Inserts the added nodes before and behind the nodes that they were added for.
  void InsertAdded(onnx::GraphProto* graph) {
    google::protobuf::RepeatedPtrField<NodeProto> old;
    old.Swap(graph->mutable_node());
    for (NodeProto& node : old) {
      const auto it = added_.find(&node);
      if (it != added_.end()) {
        for (NodeProto& before : it->second.before) *graph->add_node() = std::move(before);
      }
      graph->add_node()->Swap(&node);
      if (it == added_.end()) continue;
      for (NodeProto& after : it->second.after) *graph->add_node() = std::move(after);
    }
    added_.clear();
  }

  static int RankOf(const onnx::ValueInfoProto& info) {
    return info.type().tensor_type().has_shape() ? info.type().tensor_type().shape().dim_size()
                                                 : -1;
  }

  Finding Refusal(const NodeProto& node, const std::string& why) const {
    const std::string name =
        node.name().empty() && node.output_size() > 0 ? node.output(0) : node.name();
    return {"KV201",
            fmt::format("{} (opset {}) cannot be raised to opset {}: {}", node.op_type(), from_,
                        kTargetOpset, why),
            {name},
            {}};
  }

  // Adapts the node to the target opset. Returns why it cannot be raised; empty if it is raised.
  std::string Raise(NodeProto* node) {
    auto [known, fresh] = schemas_.try_emplace(node->op_type());
    if (fresh) {
      known->second = {SchemaOf(node->op_type(), from_), SchemaOf(node->op_type(), kTargetOpset)};
    }
    const auto [before, after] = known->second;
    if (before == nullptr && after != nullptr) {
      if (IsRuntimesOwn(*node)) return {};
      return fmt::format("opset {} has no such operator", from_);
    }
    if (before == nullptr) return {};  // no operator of ONNX: its checker reports it
    if (node->op_type() == "Scatter") {
      node->set_op_type("ScatterElements");
      return {};
    }
    if (after == nullptr || after->Deprecated()) return "the operator is gone";
    if (before->SinceVersion() == after->SinceVersion()) return {};
    if (ChangedMeaning(node->op_type(), from_, kTargetOpset)) return "its meaning has changed";
    Adapt(node);
    if (std::string why = AdaptOld(node); !why.empty()) return why;
    return Compare(*node, *before, *after);
  }

  std::string Compare(const NodeProto& node, const OpSchema& before, const OpSchema& after) const {
    for (const AttributeProto& attribute : node.attribute()) {
      if (after.attributes().count(attribute.name()) == 0) {
        return fmt::format("attribute {} is gone", attribute.name());
      }
    }
    for (const auto& [name, old] : before.attributes()) {
      const auto it = after.attributes().find(name);
      if (FindAttribute(node, name) != nullptr || it == after.attributes().end()) continue;
      if (!SameDefault(old, it->second)) return fmt::format("the default of {} changed", name);
    }
    return {};
  }

  void Adapt(NodeProto* node) {
    const std::string& op = node->op_type();
    if (op == "Squeeze" || op == "Unsqueeze" || op == "ReduceSum") {
      if (from_ < 13) ListToInput(node, "axes");
    } else if (op.rfind("Reduce", 0) == 0) {
      if (from_ < 18) ListToInput(node, "axes");
    } else if (op == "Split") {
      if (from_ < 13) ListToInput(node, "split");
      const bool even = node->input_size() < 2 || node->input(1).empty();
      if (even && FindAttribute(*node, "num_outputs") == nullptr) {
        AddInt(node, "num_outputs", node->output_size());
      }
    } else if (op == "TopK" && from_ < 10) {
      const int64_t k = IntAttribute(*node, "k", 0);
      RemoveAttribute(node, "k");
      node->add_input(ListInitializer("k", {k}));
    } else if (op == "Slice" && from_ < 10) {
      ListToInput(node, "starts");
      ListToInput(node, "ends", 2);
      ListToInput(node, "axes", 3);
    }
  }

  // Adapts operators for which more changed than that an attribute became an input. Returns why a
  // node cannot be raised; empty if it can.
  std::string AdaptOld(NodeProto* node) {
    const std::string& op = node->op_type();
    const bool softmax = op == "Softmax" || op == "LogSoftmax" || op == "Hardmax";
    if (softmax && from_ < kSoftmaxChanged) AdaptSoftmax(node);
    if (op == "Dropout" && from_ < 12) {
      // The type of the mask may be another one before opset 12.
      if (node->output_size() > 1 && !node->output(1).empty()) return AdaptDropoutMask(node);
      RemoveAttribute(node, "ratio");  // inference ignores it
    } else if (op == "Clip" && from_ < 11) {
      ScalarToInput(node, "min", 1);
      ScalarToInput(node, "max", 2);
    } else if (op == "Pad" && from_ < 11) {
      ListToInput(node, "pads");
      if (FloatAttribute(*node, "value", 0) != 0) ScalarToInput(node, "value", 2);
      RemoveAttribute(node, "value");
    } else if (op == "BatchNormalization" && from_ < 14) {
      if (node->output_size() > 1) return "it trains";
      if (IntAttribute(*node, "spatial", 1) != 1) return "its statistics are of each element";
      RemoveAttribute(node, "spatial");
    }
    return {};
  }

  // Removes the mask and the ratio. Returns a reason instead if anything reads the mask.
  std::string AdaptDropoutMask(NodeProto* node) {
    const std::string mask = node->output(1);
    std::vector<const onnx::GraphProto*> stack = {&model_->graph()};
    while (!stack.empty()) {
      const onnx::GraphProto* graph = stack.back();
      stack.pop_back();
      for (const auto& v : graph->output()) {
        if (v.name() == mask) return "its mask is read";
      }
      for (const NodeProto& other : graph->node()) {
        for (const std::string& input : other.input()) {
          if (input == mask) return "its mask is read";
        }
        for (const AttributeProto& attribute : other.attribute()) {
          if (attribute.has_g()) stack.push_back(&attribute.g());
        }
      }
    }
    node->mutable_output()->DeleteSubrange(1, node->output_size() - 1);
    RemoveAttribute(node, "ratio");
    return {};
  }

  // Before opset 13, Softmax, LogSoftmax and Hardmax flatten all axes from `axis` on. That is the
  // newer meaning only if `axis` is the last one.
  void AdaptSoftmax(NodeProto* node) {
    const auto it = ranks_.find(node->input(0));
    const int rank = it == ranks_.end() ? -1 : it->second;
    if (rank >= 0 || IntAttribute(*node, "axis", 1) == -1) return SetSoftmaxAxis(node, rank);
    in_bodies_ = in_bodies_ || !main_graph_;
    const std::string mark = Fresh("undecided");
    undecided_[mark] = node->doc_string();
    node->set_doc_string(mark);
  }

  void SetSoftmaxAxis(NodeProto* node, int rank) {
    const int64_t axis = IntAttribute(*node, "axis", 1);
    RemoveAttribute(node, "axis");
    AddInt(node, "axis", -1);
    if (axis == -1 || (rank >= 0 && axis == rank - 1)) return;
    const std::string x = node->input(0), y = node->output(0);
    const std::string shape = Fresh("shape"), flat = Fresh("flat"), result = Fresh("rows");
    before_.push_back(MakeNode("Shape", {x}, shape));
    before_.push_back(MakeNode("Flatten", {x}, flat));
    AddInt(&before_.back(), "axis", axis);
    // Findings still name the node by its output.
    if (node->name().empty() && node_names_.insert(y).second) node->set_name(y);
    node->set_input(0, flat);
    node->set_output(0, result);
    after_.push_back(MakeNode("Reshape", {result, shape}, y));
    after_.back().set_name(Fresh("shaped"));
    AddInt(&after_.back(), "allowzero", 1);
  }

  static NodeProto MakeNode(const std::string& op, const std::vector<std::string>& inputs,
                            const std::string& output) {
    NodeProto node;
    node.set_op_type(op);
    node.set_name(output);
    for (const std::string& input : inputs) node.add_input(input);
    node.add_output(output);
    return node;
  }

  static void AddInt(NodeProto* node, const std::string& name, int64_t value) {
    AttributeProto* attribute = node->add_attribute();
    attribute->set_name(name);
    attribute->set_type(AttributeProto::INT);
    attribute->set_i(value);
  }

  std::string Fresh(const std::string& role) {
    std::string name;
    do {
      name = fmt::format("/kvlift/opset/{}_{}", role, ++fresh_);
    } while (names_.contains(name));
    names_.insert(name);
    return name;
  }

  static void RemoveAttribute(NodeProto* node, const std::string& name) {
    for (int i = 0; i < node->attribute_size(); ++i) {
      if (node->attribute(i).name() == name) {
        node->mutable_attribute()->DeleteSubrange(i, 1);
        return;
      }
    }
  }

  // Moves a list attribute to an input of the node.
  void ListToInput(NodeProto* node, const std::string& name, int input = 1) {
    if (FindAttribute(*node, name) == nullptr) return;
    const std::vector<int64_t> list = IntsAttribute(*node, name);
    RemoveAttribute(node, name);
    SetInput(node, input, ListInitializer(name, list));
  }

  static void SetInput(NodeProto* node, int input, const std::string& value) {
    while (node->input_size() <= input) node->add_input("");
    node->set_input(input, value);
  }

  // Moves a float attribute to an input, a scalar of the type of input 0.
  void ScalarToInput(NodeProto* node, const std::string& name, int input) {
    if (FindAttribute(*node, name) == nullptr) return;
    onnx::TensorProto scalar;
    scalar.set_name(Fresh(name));
    scalar.set_data_type(onnx::TensorProto::FLOAT);
    scalar.add_float_data(FloatAttribute(*node, name, 0));
    RemoveAttribute(node, name);
    std::string value = scalar.name();
    *model_->mutable_graph()->add_initializer() = std::move(scalar);
    const auto it = types_.find(node->input(0));
    if (it == types_.end() || it->second != onnx::TensorProto::FLOAT) {
      const std::string like = Fresh(name);
      before_.push_back(MakeNode("CastLike", {value, node->input(0)}, like));
      value = like;
    }
    SetInput(node, input, value);
  }

  std::string ListInitializer(const std::string& name, const std::vector<int64_t>& list) {
    auto [it, fresh] = lists_.try_emplace(list);
    if (fresh) {
      const std::string candidate = Fresh(name);
      it->second = candidate;
      *model_->mutable_graph()->add_initializer() =
          MakeInt64Tensor(candidate, {static_cast<int64_t>(list.size())}, list);
    }
    return it->second;
  }

  onnx::ModelProto* model_;
  int64_t from_;
  absl::flat_hash_set<std::string> names_;  // of values and nodes
  absl::flat_hash_set<std::string> node_names_;
  absl::flat_hash_map<std::string, std::pair<const OpSchema*, const OpSchema*>> schemas_;
  absl::flat_hash_map<std::string, int> ranks_;
  absl::flat_hash_map<std::string, int32_t> types_;
  absl::flat_hash_map<std::vector<int64_t>, std::string> lists_;
  bool main_graph_ = true;
  int fresh_ = 0;
  absl::flat_hash_map<std::string, std::string> undecided_;  // by mark: the node's own doc string
  bool in_bodies_ = false;                                   // whether one of them is in a body
  // Nodes to insert around the node that is being raised (before_, after_) and around nodes of the
  // current graph (added_).
  std::vector<NodeProto> before_, after_;
  absl::flat_hash_map<const NodeProto*, Added> added_;
};

// Adds the ranks of operands of undecided nodes of the main graph, by their marks. Ranks in forms
// do not depend on the axis of a Softmax.
void AddRanks(const OpsetRaiser& raiser, const std::shared_ptr<const onnx::ModelProto>& model,
              absl::flat_hash_map<std::string, int>* ranks) {
  const auto graph = Graph::Build(model);
  if (!graph.ok()) return;
  sym::Forms forms(*graph);
  for (NodeId n = 0; n < graph->num_nodes(); ++n) {
    if (!raiser.IsUndecided(graph->node(n))) continue;
    const sym::Form& form = forms.Of(graph->inputs(n)[0]);
    if (form.known_rank) {
      (*ranks)[graph->node(n).doc_string()] = static_cast<int>(form.shape.size());
    }
  }
}

// Ranks of values in branches are those that they have if the branch is taken.
void DecideByForms(OpsetRaiser* raiser, onnx::ModelProto* model) {
  absl::flat_hash_map<std::string, int> ranks;
  AddRanks(*raiser, std::shared_ptr<const onnx::ModelProto>(model, [](const auto*) {}), &ranks);
  for (const bool taken : {true, false}) {
    if (!raiser->has_undecided_in_bodies()) break;
    auto chosen = InlineBranches(*model, [&](sym::Forms&, ValueId) { return taken; });
    if (!chosen.ok()) continue;
    AddRanks(*raiser, std::make_shared<const onnx::ModelProto>(*std::move(chosen)), &ranks);
  }
  raiser->Decide(ranks);
}

}  // namespace

namespace {

// Raises the body of a function by itself. Returns false if that is not possible.
bool RaiseBody(onnx::FunctionProto* function) {
  onnx::ModelProto alone;
  *alone.mutable_opset_import() = function->opset_import();
  *alone.mutable_graph()->mutable_node() = function->node();
  RaisedOpset raised = RaiseOpset(std::move(alone));
  if (raised.refusal || raised.model.graph().initializer_size() > 0) return false;
  *function->mutable_opset_import() = raised.model.opset_import();
  *function->mutable_node() = raised.model.graph().node();
  return true;
}

void RaiseBodies(onnx::ModelProto* model) {
  auto* functions = model->mutable_functions();
  for (int k = functions->size() - 1; k >= 0; --k) {
    if (!RaiseBody(functions->Mutable(k))) functions->DeleteSubrange(k, 1);
  }
}

}  // namespace

RaisedOpset RaiseOpset(onnx::ModelProto model) {
  RaisedOpset result{std::move(model), std::nullopt};
  onnx::OperatorSetIdProto* import = nullptr;
  for (auto& entry : *result.model.mutable_opset_import()) {
    if (IsDefaultDomain(entry.domain())) import = &entry;
  }
  if (import == nullptr || import->version() >= kTargetOpset) return result;
  const int64_t from = import->version();
  if (from < kOldestOpset) {
    result.refusal = Finding{
        "KV201",
        fmt::format("opset {} is older than {}, the oldest that is read", from, kOldestOpset),
        {},
        {}};
    return result;
  }
  // A refusal restores the nodes. Weights are neither changed nor copied.
  onnx::GraphProto* graph = result.model.mutable_graph();
  const google::protobuf::RepeatedPtrField<NodeProto> nodes = graph->node();
  const int initializers = graph->initializer_size();
  OpsetRaiser raiser(&result.model, from);
  raiser.InferTypes(result.model);
  import->set_version(kTargetOpset);
  result.refusal = raiser.Run();
  if (result.refusal.has_value()) {
    *graph->mutable_node() = nodes;
    graph->mutable_initializer()->DeleteSubrange(initializers,
                                                 graph->initializer_size() - initializers);
    import->set_version(from);
    return result;
  }
  if (raiser.has_undecided()) DecideByForms(&raiser, &result.model);
  RaiseBodies(&result.model);
  if (result.model.ir_version() < kTargetIrVersion) {
    result.model.set_ir_version(kTargetIrVersion);
  }
  return result;
}

}  // namespace kvlift
