#include "rewrite/opset.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "fmt/format.h"
#include "ir/graph.h"
#include "ir/tensor_data.h"
#include "onnx/defs/schema.h"
#include "onnxio/model.h"

namespace kvlift {
namespace {

using onnx::AttributeProto;
using onnx::NodeProto;
using onnx::OpSchema;

bool IsDefaultDomain(const std::string& domain) { return domain.empty() || domain == "ai.onnx"; }

constexpr int64_t kSoftmaxChanged = 13;

const OpSchema* SchemaOf(const std::string& op_type, int64_t version) {
  return onnx::OpSchemaRegistry::Schema(op_type, static_cast<int>(version), "");
}

// Operators whose later versions compute something else without saying so in their attributes.
bool ChangedMeaning(const std::string& op, int64_t from, int64_t to) {
  static const auto* const kChanges = new absl::flat_hash_map<std::string, std::vector<int64_t>>{
      {"RoiAlign", {16}},       {"GroupNormalization", {21}}, {"GridSample", {20}}, {"DFT", {20}},
      {"Resize", {13, 18, 19}}, {"BatchNormalization", {14}}, {"Hardmax", {13}}};
  const auto it = kChanges->find(op);
  if (it == kChanges->end()) return false;
  for (int64_t version : it->second) {
    if (from < version && version <= to) return true;
  }
  return false;
}

bool SameDefault(const OpSchema::Attribute& a, const OpSchema::Attribute& b) {
  return a.default_value.SerializeAsString() == b.default_value.SerializeAsString();
}

class OpsetRaiser {
 public:
  OpsetRaiser(onnx::ModelProto* model, int64_t from) : model_(model), from_(from) {
    for (const auto& t : model->graph().initializer()) names_.insert(t.name());
    for (const auto& v : model->graph().input()) names_.insert(v.name());
    CollectRanks(model->graph());
    for (const auto& v : model->graph().input()) ranks_[v.name()] = RankOf(v);
  }

  // Ranks by shape inference, of the model as it was.
  void InferRanks(const onnx::ModelProto& original) {
    if (from_ >= kSoftmaxChanged) return;
    if (const auto inferred = InferShapes(original); inferred.ok()) CollectRanks(inferred->graph());
  }

  // The first node that cannot be raised, or nothing.
  std::optional<Finding> Run() {
    std::vector<onnx::GraphProto*> stack = {model_->mutable_graph()};
    while (!stack.empty()) {
      onnx::GraphProto* graph = stack.back();
      stack.pop_back();
      for (NodeProto& node : *graph->mutable_node()) {
        for (const std::string& output : node.output()) names_.insert(output);
        for (AttributeProto& attribute : *node.mutable_attribute()) {
          if (attribute.has_g()) stack.push_back(attribute.mutable_g());
          for (auto& g : *attribute.mutable_graphs()) stack.push_back(&g);
        }
        if (!IsDefaultDomain(node.domain())) continue;
        if (std::string why = Raise(&node); !why.empty()) return Refusal(node, why);
      }
    }
    return std::nullopt;
  }

 private:
  void CollectRanks(const onnx::GraphProto& graph) {
    for (const auto& v : graph.value_info()) ranks_[v.name()] = RankOf(v);
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

  // Empty if the node is fine at the target opset now, else why not.
  std::string Raise(NodeProto* node) {
    const OpSchema* before = SchemaOf(node->op_type(), from_);
    const OpSchema* after = SchemaOf(node->op_type(), kTargetOpset);
    if (before == nullptr) return {};  // not ONNX's: the checker has its say
    if (after == nullptr || after->Deprecated()) return "the operator is gone";
    if (before->SinceVersion() == after->SinceVersion()) return {};
    if (ChangedMeaning(node->op_type(), from_, kTargetOpset)) return "its meaning has changed";
    Adapt(node);
    if (node->op_type() == "Softmax" || node->op_type() == "LogSoftmax") {
      if (std::string why = AdaptSoftmax(node); !why.empty()) return why;
    }
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
        AttributeProto* attribute = node->add_attribute();
        attribute->set_name("num_outputs");
        attribute->set_type(AttributeProto::INT);
        attribute->set_i(node->output_size());
      }
    } else if (op == "Dropout" && from_ < 12) {
      RemoveAttribute(node, "ratio");  // inference ignores it
    }
  }

  // Before 13, Softmax flattened everything from `axis` on; that is today's Softmax only on the
  // last axis.
  std::string AdaptSoftmax(NodeProto* node) {
    if (from_ >= kSoftmaxChanged) return {};
    const int64_t axis = IntAttribute(*node, "axis", 1);
    const auto it = ranks_.find(node->input(0));
    const int rank = it == ranks_.end() ? -1 : it->second;
    if (axis != -1 && (rank < 0 || axis != rank - 1)) {
      return "before opset 13 it flattens, and its axis is not known to be the last";
    }
    RemoveAttribute(node, "axis");
    AttributeProto* attribute = node->add_attribute();
    attribute->set_name("axis");
    attribute->set_type(AttributeProto::INT);
    attribute->set_i(-1);
    return {};
  }

  static void RemoveAttribute(NodeProto* node, const std::string& name) {
    for (int i = 0; i < node->attribute_size(); ++i) {
      if (node->attribute(i).name() == name) {
        node->mutable_attribute()->DeleteSubrange(i, 1);
        return;
      }
    }
  }

  // Moves a list attribute to the node's second input.
  void ListToInput(NodeProto* node, const std::string& name) {
    const std::vector<int64_t> list = IntsAttribute(*node, name);
    if (FindAttribute(*node, name) == nullptr) return;
    RemoveAttribute(node, name);
    while (node->input_size() < 2) node->add_input("");
    node->set_input(1, ListInitializer(name, list));
  }

  std::string ListInitializer(const std::string& name, const std::vector<int64_t>& list) {
    auto [it, fresh] = lists_.try_emplace(list);
    if (fresh) {
      std::string candidate = fmt::format("/kvlift/opset/{}_{}", name, lists_.size());
      while (names_.contains(candidate)) candidate += "_";
      it->second = candidate;
      *model_->mutable_graph()->add_initializer() =
          MakeInt64Tensor(candidate, {static_cast<int64_t>(list.size())}, list);
    }
    return it->second;
  }

  onnx::ModelProto* model_;
  int64_t from_;
  absl::flat_hash_set<std::string> names_;
  absl::flat_hash_map<std::string, int> ranks_;
  absl::flat_hash_map<std::vector<int64_t>, std::string> lists_;
};

}  // namespace

RaisedOpset RaiseOpset(const onnx::ModelProto& model) {
  RaisedOpset result{model, std::nullopt};
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
  import->set_version(kTargetOpset);
  OpsetRaiser raiser(&result.model, from);
  raiser.InferRanks(model);
  result.refusal = raiser.Run();
  if (result.refusal.has_value()) {
    result.model = model;
    return result;
  }
  if (result.model.ir_version() < kTargetIrVersion) {
    result.model.set_ir_version(kTargetIrVersion);
  }
  return result;
}

}  // namespace kvlift
