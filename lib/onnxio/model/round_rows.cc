#include "onnxio/model/round_rows.h"

#include <algorithm>
#include <memory>

#include "base/status.h"
#include "fmt/format.h"
#include "ir/graph.h"
#include "ir/node_builder.h"
#include "ir/operators/operator_traits.h"
#include "ir/operators/quantizer.h"
#include "ir/patch.h"

namespace kvlift {
namespace {

constexpr int kMostNodes = 16;  // operators between an output and a graph input

class RowRounder {
 public:
  explicit RowRounder(const Graph& graph) : graph_(graph), nodes_(graph) {}

  void Round(ValueId output) {
    const auto rounding = RoundingOf(graph_, output);
    if (!rounding || patch_.remove_nodes.contains(rounding->dequantize)) return;
    const ValueId whole = rounding->rounded;
    const NodeId mover = graph_.producer(whole);
    if (mover == kNoNode || MovedOperands(graph_.node(mover)).empty()) return;
    if (!MovesInput(whole, 0)) return;
    rounding_ = *rounding;
    const std::string scope = fmt::format("rows.{}", replaced_.size());
    nodes_.set_scope(scope);
    const std::string name = graph_.name(graph_.outputs(rounding_.dequantize)[0]);
    const onnx::NodeProto& moved = graph_.node(mover);
    nodes_.AddNamed(moved.op_type(), Operands(mover, 0), moved.op_type(), name,
                    {moved.attribute().begin(), moved.attribute().end()});
    patch_.remove_nodes.insert(rounding_.dequantize);
    for (const Use& use : graph_.uses(whole)) {
      const bool shape = use.kind == Use::Kind::kNodeInput && graph_.Is(use.node, "Shape");
      if (shape) patch_.replace_inputs[{use.node, use.index}] = name;
    }
    replaced_.emplace_back(fmt::format("/kvlift/{}/", scope),
                           graph_.NodeName(rounding_.dequantize));
  }

  absl::StatusOr<RoundedRows> Finish() {
    patch_.drop_value_info = false;
    patch_.new_nodes = nodes_.TakeNodes();
    patch_.new_initializers = nodes_.TakeInitializers();
    RoundedRows result;
    KV_ASSIGN_OR_RETURN(result.model, Apply(graph_, patch_));
    result.replaced = std::move(replaced_);
    return result;
  }

  bool changes() const { return !replaced_.empty(); }

 private:
  // Returns true if v is a graph input, or holds elements of one that only moved or were rounded.
  bool MovesInput(ValueId v, int depth) const {
    if (v == kNoValue || depth > kMostNodes) return false;
    if (graph_.is_graph_input(v)) return true;
    if (const auto rounding = RoundingOf(graph_, v)) {
      return MovesInput(rounding->rounded, depth + 1);
    }
    const NodeId n = graph_.producer(v);
    if (n == kNoNode) return false;
    const std::vector<int> moved = MovedOperands(graph_.node(n));
    return std::any_of(moved.begin(), moved.end(),
                       [&](int k) { return MovesInput(graph_.inputs(n)[k], depth + 1); });
  }

  NodeBuilder::Inputs Operands(NodeId n, int depth) {
    NodeBuilder::Inputs operands;
    for (ValueId v : graph_.inputs(n)) operands.push_back(v == kNoValue ? "" : graph_.name(v));
    for (int k : MovedOperands(graph_.node(n)))
      operands[k] = Rounded(graph_.inputs(n)[k], depth + 1);
    return operands;
  }

  // Returns the name of v with its elements rounded.
  std::string Rounded(ValueId v, int depth) {
    const auto rounding = RoundingOf(graph_, v);
    if (rounding && rounding->quantizer == rounding_.quantizer) return graph_.name(v);
    const NodeId n = graph_.producer(v);
    if (n != kNoNode && depth < kMostNodes && !MovedOperands(graph_.node(n)).empty() &&
        MovesInput(v, 0)) {
      const onnx::NodeProto& moved = graph_.node(n);
      return nodes_.Add(moved.op_type(), Operands(n, depth), moved.op_type(),
                        {moved.attribute().begin(), moved.attribute().end()});
    }
    return Like(rounding_.dequantize, Like(rounding_.quantize, graph_.name(v)));
  }

  // Returns the name of the result of a node like n of this operand.
  std::string Like(NodeId n, const std::string& operand) {
    const onnx::NodeProto& node = graph_.node(n);
    NodeBuilder::Inputs inputs = {node.input().begin(), node.input().end()};
    inputs[0] = operand;
    return nodes_.Add(node.op_type(), inputs, node.op_type(),
                      {node.attribute().begin(), node.attribute().end()});
  }

  const Graph& graph_;
  NodeBuilder nodes_;
  Patch patch_;
  QuantizedRounding rounding_;  // of the output that Round() looks at
  std::vector<std::pair<std::string, std::string>> replaced_;
};

}  // namespace

absl::StatusOr<RoundedRows> RoundRowsFirst(onnx::ModelProto model) {
  const bool quantizes =
      std::any_of(model.graph().node().begin(), model.graph().node().end(),
                  [](const onnx::NodeProto& node) { return node.op_type() == "QuantizeLinear"; });
  if (!quantizes) return RoundedRows{std::move(model), {}};
  const auto shared = std::make_shared<const onnx::ModelProto>(std::move(model));
  KV_ASSIGN_OR_RETURN(const Graph graph, Graph::Build(shared));
  RowRounder rounder(graph);
  for (ValueId output : graph.graph_outputs()) rounder.Round(output);
  if (!rounder.changes()) return RoundedRows{*shared, {}};
  return rounder.Finish();
}

}  // namespace kvlift
