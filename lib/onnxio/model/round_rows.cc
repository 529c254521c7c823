#include "onnxio/model/round_rows.h"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

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

  // Moves the quantisers of v, and of what v is put together from.
  void Round(ValueId v, int depth = 0) {
    if (v == kNoValue || depth > kMostNodes) return;
    const NodeId n = graph_.producer(v);
    if (n == kNoNode || patch_.remove_nodes.contains(n)) return;
    if (graph_.Is(n, "DequantizeLinear")) return RoundParts(v);
    if (graph_.Is(n, "TensorScatter")) return;  // its rows are those of a step already
    for (int k : MovedOperands(graph_.node(n))) Round(graph_.inputs(n)[k], depth + 1);
  }

  absl::StatusOr<RewrittenModel> Finish() {
    patch_.drop_value_info = false;
    patch_.new_nodes = nodes_.TakeNodes();
    patch_.new_initializers = nodes_.TakeInitializers();
    RewrittenModel result;
    KV_ASSIGN_OR_RETURN(result.model, Apply(graph_, patch_));
    result.replaced = std::move(replaced_);
    return result;
  }

  bool changes() const { return !replaced_.empty(); }

 private:
  // `v` is made by a DequantizeLinear. What it rounds is put together by one of the operators that
  // move elements, either before the QuantizeLinear or behind it.
  void RoundParts(ValueId v) {
    const auto quantizer = QuantizerMaking(graph_, v);
    if (!quantizer) return;
    const auto rounding = RoundingOf(graph_, v);
    const NodeId dequantize = graph_.producer(v);
    const ValueId codes = graph_.inputs(dequantize)[0],
                  whole = rounding ? rounding->rounded : codes;
    const NodeId mover = graph_.producer(whole);
    if (mover == kNoNode || MovedOperands(graph_.node(mover)).empty()) return;
    if (!MovesInput(whole, 0)) return;
    const int place = static_cast<int>(replaced_.size());
    nodes_.set_scope(fmt::format("rows.{}", place));
    replaced_.emplace_back(fmt::format("/kvlift/rows.{}/", place), graph_.NodeName(dequantize));
    patch_.remove_nodes.insert(dequantize);
    quantizer_ = *quantizer;
    quantize_ = rounding ? rounding->quantize : kNoNode;
    dequantize_ = dequantize;
    const onnx::NodeProto& moved = graph_.node(mover);
    const std::string& name = graph_.name(v);
    nodes_.AddNamed(moved.op_type(), Operands(mover, 0), moved.op_type(), name,
                    {moved.attribute().begin(), moved.attribute().end()});
    ReadShapeOf(whole, name);
    ReadCodesOf(codes, name);
    std::vector<ValueId> own;
    own.swap(own_);
    for (ValueId part : own) Round(part);
  }

  // Lets nodes that read the shape of `old` read that of the value `name`.
  void ReadShapeOf(ValueId old, const std::string& name) {
    for (const Use& use : graph_.uses(old)) {
      const bool shape = use.kind == Use::Kind::kNodeInput && graph_.Is(use.node, "Shape");
      if (shape) patch_.replace_inputs[{use.node, use.index}] = name;
    }
  }

  // Lets other readers of the codes read the codes of the value `name`: they are the same, since a
  // quantiser gives its own numbers back.
  void ReadCodesOf(ValueId codes, const std::string& name) {
    std::string again;
    for (const Use& use : graph_.uses(codes)) {
      if (use.kind != Use::Kind::kNodeInput || use.node == dequantize_) continue;
      if (graph_.Is(use.node, "Shape")) continue;
      if (again.empty()) again = Quantized(name);
      patch_.replace_inputs.try_emplace({use.node, use.index}, again);
    }
  }

  // Returns true if v is a graph input of real numbers, or holds elements of one that only moved or
  // were rounded.
  bool MovesInput(ValueId v, int depth) const {
    if (v == kNoValue || depth > kMostNodes) return false;
    if (graph_.is_graph_input(v)) return graph_.type(v).elem_type == onnx::TensorProto::FLOAT;
    if (const auto rounding = RoundingOf(graph_, v)) {
      return MovesInput(rounding->rounded, depth + 1);
    }
    const NodeId n = graph_.producer(v);
    if (n == kNoNode) return false;
    if (graph_.Is(n, "QuantizeLinear") || QuantizerMaking(graph_, v)) {
      return MovesInput(graph_.inputs(n)[0], depth + 1);
    }
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

  // Returns the name of v with its elements rounded; of numbers that the codes v stand for if the
  // elements are moved behind the QuantizeLinear.
  std::string Rounded(ValueId v, int depth) {
    const bool codes = quantize_ == kNoNode;
    if (!codes && QuantizerMaking(graph_, v) == quantizer_) {
      own_.push_back(v);
      return graph_.name(v);
    }
    const NodeId n = graph_.producer(v);
    if (n != kNoNode && depth < kMostNodes && !MovedOperands(graph_.node(n)).empty() &&
        MovesInput(v, 0)) {
      const onnx::NodeProto& moved = graph_.node(n);
      return nodes_.Add(moved.op_type(), Operands(n, depth), moved.op_type(),
                        {moved.attribute().begin(), moved.attribute().end()});
    }
    const std::string& name = graph_.name(v);
    return Like(dequantize_, codes ? name : Like(quantize_, name));
  }

  // Returns the codes of a value by the constants of the DequantizeLinear.
  std::string Quantized(const std::string& value) {
    if (quantize_ != kNoNode) return Like(quantize_, value);
    const onnx::NodeProto& node = graph_.node(dequantize_);
    NodeBuilder::Inputs inputs = {node.input().begin(), node.input().end()};
    inputs[0] = value;
    return nodes_.Add("QuantizeLinear", inputs, "QuantizeLinear");
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
  // The quantiser that RoundParts() moves. `quantize_` is kNoNode if it is in front of the moves.
  UniformQuantizer quantizer_;
  NodeId quantize_ = kNoNode, dequantize_ = kNoNode;
  std::vector<ValueId> own_;  // parts that a DequantizeLinear with the same constants makes
  std::vector<std::pair<std::string, std::string>> replaced_;
};

}  // namespace

absl::StatusOr<RewrittenModel> RoundRowsFirst(onnx::ModelProto model) {
  const bool quantizes =
      std::any_of(model.graph().node().begin(), model.graph().node().end(),
                  [](const onnx::NodeProto& node) { return node.op_type() == "QuantizeLinear"; });
  if (!quantizes) return RewrittenModel{std::move(model), {}};
  const auto shared = std::make_shared<const onnx::ModelProto>(std::move(model));
  KV_ASSIGN_OR_RETURN(const Graph graph, Graph::Build(shared));
  RowRounder rounder(graph);
  for (ValueId output : graph.graph_outputs()) rounder.Round(output);
  if (!rounder.changes()) return RewrittenModel{*shared, {}};
  return rounder.Finish();
}

}  // namespace kvlift
