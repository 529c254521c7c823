#include "exec/compile/sequences.h"

#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "exec/memory/tensor.h"
#include "fmt/format.h"

namespace kvlift::exec {
namespace {

using onnx::NodeProto;
using onnx::TensorProto;

// The slice [start, end) of an axis.
struct Piece {
  int64_t start, end;
};

class Lowering {
 public:
  explicit Lowering(const Graph& graph) : graph_(graph) {}

  // Returns the lowered nodes, or nullopt if no node changes.
  std::optional<std::vector<NodeProto>> Run() {
    bool changed = false;
    for (NodeId n = 0; n < graph_.num_nodes(); ++n) {
      if (IsMaker(n) && AllUsesLower(n)) {
        changed = true;
      } else if (IsReader(n) && Lowers(n)) {
        changed = true;
        Lower(n);
      } else {
        nodes_.push_back(graph_.node(n));
      }
    }
    if (!changed) return std::nullopt;
    return std::move(nodes_);
  }

 private:
  bool IsMaker(NodeId n) const {
    return graph_.Is(n, "SequenceConstruct") || graph_.Is(n, "SplitToSequence");
  }
  bool IsReader(NodeId n) const {
    return graph_.Is(n, "SequenceAt") || graph_.Is(n, "ConcatFromSequence");
  }
  bool AllUsesLower(NodeId n) const {
    const ValueId v = graph_.outputs(n)[0];
    if (v == kNoValue) return false;
    for (const Use& use : graph_.uses(v)) {
      if (use.kind != Use::Kind::kNodeInput || !IsReader(use.node) || !Lowers(use.node)) {
        return false;
      }
    }
    return !graph_.is_graph_output(v);
  }

  // Returns the elements of a constant of integers.
  std::optional<std::vector<int64_t>> Integers(ValueId v) const {
    const TensorProto* constant = v == kNoValue ? nullptr : graph_.constant(v);
    if (constant == nullptr) return std::nullopt;
    const auto tensor = Tensor::FromProto(*constant, "");
    if (!tensor.ok()) return std::nullopt;
    std::vector<int64_t> values;
    for (int64_t i = 0; i < tensor->size(); ++i) {
      values.push_back(static_cast<int64_t>(ElementAsDouble(tensor->view(), i)));
    }
    return values;
  }

  // Returns the node that makes the sequence which `reader` reads; kNoNode if another kind of node
  // does.
  NodeId Maker(NodeId reader) const {
    if (graph_.inputs(reader).empty() || graph_.inputs(reader)[0] == kNoValue) return kNoNode;
    const NodeId maker = graph_.producer(graph_.inputs(reader)[0]);
    return maker != kNoNode && IsMaker(maker) ? maker : kNoNode;
  }

  bool Lowers(NodeId reader) const {
    const NodeId maker = Maker(reader);
    if (maker == kNoNode || graph_.outputs(reader)[0] == kNoValue) return false;
    if (graph_.Is(reader, "ConcatFromSequence")) return graph_.Is(maker, "SequenceConstruct");
    const std::optional<int64_t> position = Position(reader);
    if (!position.has_value()) return false;
    if (graph_.Is(maker, "SplitToSequence")) return PieceAt(maker, *position).has_value();
    const auto count = static_cast<int64_t>(graph_.inputs(maker).size());
    return *position >= -count && *position < count;
  }

  std::optional<int64_t> Position(NodeId reader) const {
    if (graph_.inputs(reader).size() < 2) return std::nullopt;
    const auto values = Integers(graph_.inputs(reader)[1]);
    if (!values.has_value() || values->size() != 1) return std::nullopt;
    return (*values)[0];
  }

  bool HasLengths(NodeId split) const {
    return graph_.inputs(split).size() > 1 && graph_.inputs(split)[1] != kNoValue;
  }

  std::optional<Piece> PieceAt(NodeId split, int64_t position) const {
    constexpr int64_t kEnd = std::numeric_limits<int64_t>::max();
    int64_t length = 1;
    if (HasLengths(split)) {
      const ValueId v = graph_.inputs(split)[1];
      const auto lengths = Integers(v);
      if (!lengths.has_value()) return std::nullopt;
      if (graph_.constant(v)->dims_size() > 0) {
        const auto count = static_cast<int64_t>(lengths->size());
        if (position < -count || position >= count) return std::nullopt;
        if (position < 0) position += count;
        Piece piece = {0, 0};
        for (int64_t i = 0; i <= position; ++i) piece = {piece.end, piece.end + (*lengths)[i]};
        return piece;
      }
      length = (*lengths)[0];
    }
    if (position < 0 && length != 1) return std::nullopt;  // the last part may be shorter
    if (position == -1) return Piece{-1, kEnd};
    return Piece{position * length, (position + 1) * length};
  }

  std::string FreshName(const std::string& base) {
    std::string name;
    do {
      name = fmt::format("{}/part{}", base, ++fresh_);
    } while (graph_.Find(name) != kNoValue);
    return name;
  }

  NodeProto& Add(std::string_view op, std::vector<std::string> inputs, const std::string& output) {
    NodeProto& node = nodes_.emplace_back();
    node.set_op_type(std::string(op));
    for (std::string& input : inputs) node.add_input(std::move(input));
    node.add_output(output);
    return node;
  }
  static void SetInt(NodeProto& node, const char* name, int64_t value) {
    onnx::AttributeProto& attribute = *node.add_attribute();
    attribute.set_name(name);
    attribute.set_type(onnx::AttributeProto::INT);
    attribute.set_i(value);
  }
  // Adds a constant with one element, of rank 1 or (if `scalar`) 0, and returns its name.
  std::string Constant(const std::string& base, int64_t value, bool scalar) {
    const std::string name = FreshName(base);
    onnx::AttributeProto& attribute = *Add("Constant", {}, name).add_attribute();
    attribute.set_name("value");
    attribute.set_type(onnx::AttributeProto::TENSOR);
    attribute.mutable_t()->set_data_type(TensorProto::INT64);
    if (!scalar) attribute.mutable_t()->add_dims(1);
    attribute.mutable_t()->add_int64_data(value);
    return name;
  }

  void Lower(NodeId reader) {
    const NodeId maker = Maker(reader);
    const std::string& output = graph_.node(reader).output(0);
    const NodeProto& made = graph_.node(maker);
    if (graph_.Is(reader, "ConcatFromSequence")) return Join(graph_.node(reader), made, output);
    const int64_t position = *Position(reader);
    if (graph_.Is(maker, "SequenceConstruct")) {
      const int64_t at = position < 0 ? position + made.input_size() : position;
      Add("Identity", {made.input(static_cast<int>(at))}, output);
      return;
    }
    const int64_t axis = IntAttribute(made, "axis", 0);
    if (!HasLengths(maker) && IntAttribute(made, "keepdims", 1) == 0) {
      const std::string index = Constant(output, position, true);
      SetInt(Add("Gather", {made.input(0), index}, output), "axis", axis);
      return;
    }
    const Piece piece = *PieceAt(maker, position);
    const std::string start = Constant(output, piece.start, false);
    const std::string end = Constant(output, piece.end, false);
    const std::string axes = Constant(output, axis, false);
    Add("Slice", {made.input(0), start, end, axes}, output);
  }

  void Join(const NodeProto& join, const NodeProto& made, const std::string& output) {
    const int64_t axis = IntAttribute(join, "axis", 0);
    std::vector<std::string> parts(made.input().begin(), made.input().end());
    if (IntAttribute(join, "new_axis", 0) != 0) {
      const std::string axes = Constant(output, axis, false);
      for (std::string& part : parts) {
        const std::string name = FreshName(output);
        if (graph_.opset() >= 13) {
          Add("Unsqueeze", {part, axes}, name);
        } else {
          onnx::AttributeProto& attribute = *Add("Unsqueeze", {part}, name).add_attribute();
          attribute.set_name("axes");
          attribute.set_type(onnx::AttributeProto::INTS);
          attribute.add_ints(axis);
        }
        part = name;
      }
    }
    SetInt(Add("Concat", std::move(parts), output), "axis", axis);
  }

  const Graph& graph_;
  std::vector<NodeProto> nodes_;
  int fresh_ = 0;
};

}  // namespace

absl::StatusOr<std::shared_ptr<const Graph>> LowerSequences(std::shared_ptr<const Graph> graph) {
  std::optional<std::vector<NodeProto>> nodes = Lowering(*graph).Run();
  if (!nodes.has_value()) return graph;
  auto model = std::make_shared<onnx::ModelProto>(graph->model());
  model->mutable_graph()->clear_node();
  for (NodeProto& node : *nodes) *model->mutable_graph()->add_node() = std::move(node);
  KV_ASSIGN_OR_RETURN(Graph lowered, Graph::Build(std::move(model)));
  return std::make_shared<const Graph>(std::move(lowered));
}

}  // namespace kvlift::exec
