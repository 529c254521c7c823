#include "verify/steps/decisions.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <string_view>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/match.h"
#include "base/status.h"
#include "ir/operators/operator_changes.h"
#include "ir/operators/operator_traits.h"
#include "ir/types.h"
#include "proof/graphs/value_types.h"
#include "verify/mutants/mutant_maker.h"
#include "verify/variants/other_weights.h"

namespace kvlift {
namespace {

using onnx::TensorProto;

// The first opset with GatherElements.
constexpr int64_t kLeastOpset = 11;

bool IsOnnxComparison(const Graph& graph, NodeId n) {
  const onnx::NodeProto& node = graph.node(n);
  return node.domain().empty() && IsComparison(node.op_type());
}

bool IsProduct(const onnx::NodeProto& node) {
  return absl::StrContains(node.op_type(), "MatMul") ||
         absl::StrContains(node.op_type(), "Attention") || node.op_type() == "Gemm" ||
         node.op_type() == "Conv";
}

// Returns, by value, whether it depends on the result of a product.
std::vector<bool> BehindProducts(const Graph& graph) {
  std::vector<bool> behind(static_cast<size_t>(graph.num_values()), false);
  for (NodeId n = 0; n < graph.num_nodes(); ++n) {
    const auto inputs = graph.inputs(n);
    const bool is_behind =
        IsProduct(graph.node(n)) || std::any_of(inputs.begin(), inputs.end(), [&](ValueId v) {
          return v != kNoValue && behind[static_cast<size_t>(v)];
        });
    for (ValueId v : graph.outputs(n)) {
      if (v != kNoValue) behind[static_cast<size_t>(v)] = is_behind;
    }
  }
  return behind;
}

// Returns the output of the node that is a decision; kNoValue if no output of it is one.
ValueId DecisionOf(const Graph& graph, NodeId n) {
  const auto outputs = graph.outputs(n);
  if (graph.Is(n, "TopK")) return outputs.size() > 1 ? outputs[1] : kNoValue;
  const bool decides = graph.Is(n, "ArgMax") || graph.Is(n, "ArgMin") || IsOnnxComparison(graph, n);
  return decides ? outputs[0] : kNoValue;
}

void AddOutput(const std::string& name, int32_t type, onnx::GraphProto* graph) {
  const bool is_output =
      std::any_of(graph->output().begin(), graph->output().end(),
                  [&](const onnx::ValueInfoProto& output) { return output.name() == name; });
  if (is_output) return;
  onnx::ValueInfoProto* output = graph->add_output();
  output->set_name(name);
  output->mutable_type()->mutable_tensor_type()->set_elem_type(type);
}

Model With(Model model, std::shared_ptr<const onnx::ModelProto> proto) {
  model.proto = std::move(proto);
  model.digest = nullptr;
  return model;
}

// Returns what sequences that ran one by one decided, as one tensor for the batch. A sequence that
// ran without its padding tokens has fewer than `tokens`, on axis 1, or on axis 0 if that counts
// tokens: padding tokens get 0. nullopt if there is no such axis.
std::optional<exec::Tensor> Joined(const std::vector<exec::View>& parts, int64_t tokens) {
  exec::Shape shape = parts.front().shape;
  if (shape.empty()) return std::nullopt;
  std::vector<exec::Tensor> filled;
  for (const exec::View& part : parts) {
    exec::Shape own = part.shape;
    if (own.size() != shape.size() || part.type != parts.front().type) return std::nullopt;
    const size_t axis = own.size() > 1 && own[0] == 1 ? 1 : 0;
    const int64_t missing = own[axis] < tokens ? tokens - own[axis] : 0;
    own[axis] += missing;
    exec::Tensor all = exec::Tensor::Zeros(part.type, own);
    // All axes in front of `axis` have one element, so the missing tokens stand behind the others.
    if (part.bytes() > 0) std::memcpy(all.data(), part.data, static_cast<size_t>(part.bytes()));
    filled.push_back(std::move(all));
  }
  shape = filled.front().shape();
  shape[0] = 0;
  int64_t bytes = 0;
  for (const exec::Tensor& part : filled) {
    if (!std::equal(shape.begin() + 1, shape.end(), part.shape().begin() + 1)) return std::nullopt;
    shape[0] += part.shape()[0];
    bytes += part.view().bytes();
  }
  exec::Tensor all(parts.front().type, shape);
  if (all.view().bytes() != bytes) return std::nullopt;
  auto* to = all.data();
  for (const exec::Tensor& part : filled) {
    const int64_t size = part.view().bytes();
    if (size > 0) std::memcpy(to, part.view().data, static_cast<size_t>(size));
    to += size;
  }
  return all;
}

}  // namespace

Decisions::Decisions(const Graph& before, const Graph& after) {
  if (DefaultOpset(before.model()) < kLeastOpset || DefaultOpset(after.model()) < kLeastOpset) {
    return;
  }
  const std::vector<bool> behind = BehindProducts(after);
  for (NodeId n = 0; n < after.num_nodes(); ++n) {
    const ValueId mine = DecisionOf(after, n);
    if (mine == kNoValue || !behind[static_cast<size_t>(mine)]) continue;
    const bool compares = IsOnnxComparison(after, n);
    if (compares && !IsFloatType(TypesOf(after, {after.inputs(n)[0]})[0].elem_type)) continue;
    const ValueId theirs = before.Find(after.name(mine));
    const NodeId other = theirs == kNoValue ? kNoNode : before.producer(theirs);
    if (other == kNoNode || DecisionOf(before, other) != theirs ||
        before.node(other).op_type() != after.node(n).op_type()) {
      continue;
    }
    Decision decision;
    decision.value = after.name(mine);
    decision.top_k = after.Is(n, "TopK");
    decision.axis = IntAttribute(after.node(n), "axis", -1);
    decision.type = compares ? TensorProto::BOOL : TensorProto::INT64;
    all_.push_back(std::move(decision));
  }
}

absl::StatusOr<Model> Decisions::WithDecisionsAsOutputs(const Model& model) const {
  KV_ASSIGN_OR_RETURN(const std::shared_ptr<onnx::ModelProto> proto, WithSameWeights(model.proto));
  for (const Decision& decision : all_) {
    AddOutput(decision.value, decision.type, proto->mutable_graph());
  }
  return With(model, proto);
}

absl::StatusOr<Model> Decisions::Following(const Model& model) const {
  KV_ASSIGN_OR_RETURN(const std::shared_ptr<onnx::ModelProto> proto, WithSameWeights(model.proto));
  onnx::GraphProto& graph = *proto->mutable_graph();
  absl::flat_hash_map<std::string, const Decision*> by_value;
  for (const Decision& decision : all_) by_value[decision.value] = &decision;
  std::vector<onnx::NodeProto> nodes;
  for (onnx::NodeProto& node : *graph.mutable_node()) {
    const int place = node.op_type() == "TopK" ? 1 : 0;
    const auto found =
        node.output_size() > place ? by_value.find(node.output(place)) : by_value.end();
    if (found == by_value.end()) {
      nodes.push_back(std::move(node));
      continue;
    }
    const Decision& decision = *found->second;
    const std::string values = node.output(0), scores = node.input(0);
    node.set_output(place, OwnName(decision));
    if (decision.top_k) node.set_output(0, OwnName(decision) + "/values");
    nodes.push_back(std::move(node));
    nodes.push_back(MutantMaker::Make("Identity", {FedName(decision)}, decision.value));
    if (decision.top_k && !values.empty()) {
      nodes.push_back(MutantMaker::Make("GatherElements", {scores, decision.value}, values,
                                        {MutantMaker::IntAttr("axis", decision.axis)}));
    }
    AddOutput(OwnName(decision), decision.type, &graph);
    onnx::ValueInfoProto* fed = graph.add_input();
    fed->set_name(FedName(decision));
    fed->mutable_type()->mutable_tensor_type()->set_elem_type(decision.type);
  }
  graph.clear_node();
  for (onnx::NodeProto& node : nodes) *graph.add_node() = std::move(node);
  return With(model, proto);
}

exec::Feeds Decisions::FeedsOf(const exec::Fetches& shown) const {
  exec::Feeds feeds;
  for (const Decision& decision : all_) {
    const auto found = shown.find(decision.value);
    if (found != shown.end()) feeds[FedName(decision)] = found->second.Clone();
  }
  return feeds;
}

std::optional<std::vector<exec::Feeds>> Decisions::FeedsOf(const Record& record) const {
  std::vector<exec::Feeds> steps;
  for (size_t k = 0; k < record.steps.size(); ++k) {
    const SourceStep& step = record.steps[k];
    if (step.outputs.size() == 1) {
      steps.push_back(FeedsOf(step.outputs.front()));
      continue;
    }
    exec::Feeds& feeds = steps.emplace_back();
    for (const Decision& decision : all_) {
      std::vector<exec::View> parts;
      for (const exec::Fetches& group : step.outputs) {
        parts.push_back(group.at(decision.value).view());
      }
      auto all = Joined(parts, record.plan->steps[k].new_tokens);
      if (!all) return std::nullopt;
      feeds[FedName(decision)] = *std::move(all);
    }
  }
  return steps;
}

void Decisions::Count(const Record& record, const std::vector<exec::Feeds>& fed,
                      const std::vector<exec::Fetches>& own) {
  for (size_t k = 0; k < std::min(fed.size(), own.size()); ++k) {
    const StepSpec& step = record.plan->steps[k];
    if (!step.pads.empty() || !step.real.empty()) continue;
    for (const Decision& decision : all_) {
      const auto theirs = fed[k].find(FedName(decision));
      const auto mine = own[k].find(OwnName(decision));
      if (theirs == fed[k].end() || mine == own[k].end()) continue;
      const exec::View a = theirs->second.view(), b = mine->second.view();
      if (a.shape != b.shape) continue;
      // Elements that are `inner` apart on the axis of a TopK are one decision.
      const auto rank = static_cast<int64_t>(a.shape.size());
      const int64_t axis = decision.axis < 0 ? decision.axis + rank : decision.axis;
      int64_t along = 1, inner = 1;
      if (decision.top_k && axis >= 0 && axis < rank) {
        along = a.shape[static_cast<size_t>(axis)];
        for (int64_t d = axis + 1; d < rank; ++d) inner *= a.shape[static_cast<size_t>(d)];
      }
      if (along < 1) continue;
      for (int64_t row = 0; row < a.size() / along; ++row) {
        const int64_t first = row / inner * along * inner + row % inner;
        bool alike = true;
        for (int64_t i = 0; alike && i < along; ++i) {
          alike = exec::ElementAsDouble(a, first + i * inner) ==
                  exec::ElementAsDouble(b, first + i * inner);
        }
        ++made_;
        unlike_ += alike ? 0 : 1;
      }
    }
  }
}

}  // namespace kvlift
