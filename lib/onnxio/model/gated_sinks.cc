#include "onnxio/model/gated_sinks.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "fmt/format.h"
#include "ir/graph.h"
#include "ir/node_builder.h"
#include "ir/patch.h"
#include "ir/tensor_data.h"

namespace kvlift {
namespace {

// A product of an attention's result and a gate.
struct GatedResult {
  ValueId scores = kNoValue, sink = kNoValue, values = kNoValue;
  bool keeps_axis = false;  // the sink has an axis of one element for that of the keys
};

class SinkKeyer {
 public:
  explicit SinkKeyer(const Graph& graph) : graph_(graph), nodes_(graph) {}

  absl::StatusOr<RewrittenModel> Run() {
    RewrittenModel result;
    for (NodeId n = 0; n < graph_.num_nodes(); ++n) {
      const auto gated = Read(n);
      if (!gated) continue;
      const size_t place = result.replaced.size();
      nodes_.set_scope(fmt::format("sinks.{}", place));
      Replace(n, *gated);
      result.replaced.emplace_back(fmt::format("{}{}/", kGatedSinks, place), graph_.NodeName(n));
    }
    if (result.replaced.empty()) {
      result.model = graph_.model();
      return result;
    }
    patch_.drop_value_info = false;
    patch_.new_nodes = nodes_.TakeNodes();
    patch_.new_initializers = nodes_.TakeInitializers();
    KV_ASSIGN_OR_RETURN(result.model, Apply(graph_, patch_));
    return result;
  }

 private:
  NodeId Maker(ValueId v, const char* op) const {
    const NodeId n = v == kNoValue ? kNoNode : graph_.producer(v);
    return n != kNoNode && graph_.Is(n, op) ? n : kNoNode;
  }

  // Returns what Identity nodes make the operand of; kNoValue if it is not given.
  ValueId Operand(NodeId n, size_t k) const {
    const auto inputs = graph_.inputs(n);
    ValueId v = k < inputs.size() ? inputs[k] : kNoValue;
    for (NodeId same = Maker(v, "Identity"); same != kNoNode; same = Maker(v, "Identity")) {
      v = graph_.inputs(same)[0];
    }
    return v;
  }

  // Returns true if the integers, a constant operand or an attribute, are the last axis alone.
  bool IsLastAxis(NodeId n, size_t operand) const {
    std::vector<int64_t> axes = IntsAttribute(graph_.node(n), "axes");
    const ValueId v = Operand(n, operand);
    if (const auto* tensor = v == kNoValue ? nullptr : graph_.constant(v); tensor != nullptr) {
      const auto ints = ReadInts(*tensor);
      if (ints.ok()) axes.assign(ints->begin(), ints->end());
    }
    return axes.size() == 1 && axes[0] == -1;
  }

  std::optional<GatedResult> Read(NodeId mul) const {
    if (!graph_.Is(mul, "Mul")) return std::nullopt;
    for (const size_t side : {0, 1}) {
      GatedResult gated;
      if (ReadGate(Operand(mul, side), &gated) && ReadResult(Operand(mul, 1 - side), &gated)) {
        return gated;
      }
    }
    return std::nullopt;
  }

  // Returns true if the last axis of a value is seen to have one element, or if it has no axes.
  bool EndsWithOne(ValueId v) const {
    if (v == kNoValue) return false;
    if (const auto* tensor = graph_.constant(v); tensor != nullptr) {
      return tensor->dims().empty() || *tensor->dims().rbegin() == 1;
    }
    if (const auto& shape = graph_.type(v).shape; shape) {
      return shape->empty() || shape->back().value == 1;
    }
    const NodeId unsqueeze = Maker(v, "Unsqueeze");
    return unsqueeze != kNoNode && IsLastAxis(unsqueeze, 1);
  }

  // Reads Sigmoid(ReduceLogSumExp(scores) - sink), which has one element on the axis of the keys.
  bool ReadGate(ValueId v, GatedResult* gated) const {
    const NodeId unsqueeze = Maker(v, "Unsqueeze");
    if (unsqueeze != kNoNode) {
      if (!IsLastAxis(unsqueeze, 1)) return false;
      v = Operand(unsqueeze, 0);
    }
    const NodeId sigmoid = Maker(v, "Sigmoid");
    const NodeId sub = sigmoid == kNoNode ? kNoNode : Maker(Operand(sigmoid, 0), "Sub");
    const NodeId sum = sub == kNoNode ? kNoNode : Maker(Operand(sub, 0), "ReduceLogSumExp");
    if (sum == kNoNode || !IsLastAxis(sum, 1)) return false;
    gated->keeps_axis = IntAttribute(graph_.node(sum), "keepdims", 1) != 0;
    gated->scores = Operand(sum, 0);
    gated->sink = Operand(sub, 1);
    if (gated->keeps_axis) return unsqueeze == kNoNode && EndsWithOne(gated->sink);
    return unsqueeze != kNoNode;
  }

  // Reads MatMul(Softmax(scores), V).
  bool ReadResult(ValueId v, GatedResult* gated) const {
    const NodeId product = Maker(v, "MatMul");
    const NodeId softmax = product == kNoNode ? kNoNode : Maker(Operand(product, 0), "Softmax");
    if (softmax == kNoNode) return false;
    gated->values = Operand(product, 1);
    return Operand(softmax, 0) == gated->scores &&
           IntAttribute(graph_.node(softmax), "axis", -1) == -1;
  }

  void Replace(NodeId mul, const GatedResult& gated) {
    const std::string scores = graph_.name(gated.scores);
    const std::string last = nodes_.Int64s({-1}), zero = nodes_.Int64s({0});
    std::string sink = graph_.name(gated.sink);
    if (!gated.keeps_axis) sink = nodes_.Add("Unsqueeze", {sink, last}, "sink");
    const std::string shape = nodes_.Add("Shape", {scores}, "shape");
    const std::string rows = nodes_.Add("Slice", {shape, zero, last, zero}, "rows");
    const std::string column = nodes_.Add("Concat", {rows, nodes_.Int64s({1})}, "column",
                                          {MakeAttribute("axis", int64_t{0})});
    const std::string scored =
        nodes_.Add("Concat", {scores, nodes_.Add("Expand", {sink, column}, "sinks")}, "scores",
                   {MakeAttribute("axis", int64_t{-1})});
    const std::string all =
        nodes_.Add("Softmax", {scored}, "Softmax", {MakeAttribute("axis", int64_t{-1})});
    const std::string weights = nodes_.Add("Slice", {all, zero, last, last}, "weights");
    patch_.remove_nodes.insert(mul);
    nodes_.AddNamed("MatMul", {weights, graph_.name(gated.values)}, "MatMul",
                    graph_.name(graph_.outputs(mul)[0]));
  }

  const Graph& graph_;
  NodeBuilder nodes_;
  Patch patch_;
};

}  // namespace

absl::StatusOr<RewrittenModel> KeyGatedSinks(onnx::ModelProto model) {
  const auto& nodes = model.graph().node();
  const bool sums = std::any_of(nodes.begin(), nodes.end(), [](const onnx::NodeProto& node) {
    return node.op_type() == "ReduceLogSumExp";
  });
  if (!sums) return RewrittenModel{std::move(model), {}};
  const auto shared = std::make_shared<const onnx::ModelProto>(std::move(model));
  KV_ASSIGN_OR_RETURN(const Graph graph, Graph::Build(shared));
  return SinkKeyer(graph).Run();
}

}  // namespace kvlift
