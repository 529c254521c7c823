#include "exec/compile/fusing_attention.h"

#include <string>
#include <utility>
#include <vector>

#include "exec/kernels/attention/attention_quantized.h"
#include "exec/kernels/elementwise/rows.h"
#include "ir/tensor_data.h"

namespace kvlift::exec {
namespace {

using onnx::TensorProto;

constexpr int kKeys = 1, kValues = 2, kPastKey = 4, kPastValue = 5, kScales = 7;

// The stored tensor and the scales that an operand is dequantised from.
struct Rows {
  ValueId stored = kNoValue, scales = kNoValue;
  // Elements of a row that share a scale; 0: the shape of the scales decides.
  int64_t group = 0;
  std::vector<NodeId> nodes;  // nodes that the fused node replaces
};

// Returns the node that makes v if v has a single reader, else kNoNode.
NodeId OwnProducer(const Graph& graph, ValueId v) {
  const NodeId n = v == kNoValue ? kNoNode : graph.producer(v);
  const bool own = n != kNoNode && !graph.is_graph_output(v) && graph.uses(v).size() == 1 &&
                   graph.uses(v)[0].kind == Use::Kind::kNodeInput;
  return own ? n : kNoNode;
}

bool IsOne(const onnx::TensorProto* tensor) {
  if (tensor == nullptr || tensor->data_type() != TensorProto::FLOAT) return false;
  const auto values = ReadFloats(*tensor);
  return values.ok() && values->size() == 1 && (*values)[0] == 1;
}

// Returns the declared sizes of the head axis and the element axis, also from in front of a Slice.
std::optional<std::pair<int64_t, int64_t>> HeadsOf(const Graph& graph, ValueId v) {
  for (int k = 0; k < 2 && v != kNoValue; ++k) {
    const auto& shape = graph.type(v).shape;
    if (shape && shape->size() == 4 && (*shape)[1].value && (*shape)[3].value) {
      return std::pair(*(*shape)[1].value, *(*shape)[3].value);
    }
    const NodeId n = graph.producer(v);
    v = n != kNoNode && graph.Is(n, "Slice") ? graph.inputs(n)[0] : kNoValue;
  }
  return std::nullopt;
}

// Returns true for a Mul with constants [1, Nk, 1, D], one per head and element.
bool IsByChannel(const Graph& graph, NodeId multiply, const Rows& rows) {
  const onnx::TensorProto* scale = graph.constant(rows.scales);
  const auto heads = HeadsOf(graph, rows.stored);
  return graph.inputs(multiply).size() == 2 && scale != nullptr && heads &&
         scale->data_type() == TensorProto::FLOAT && scale->dims_size() == 4 &&
         scale->dims(0) == 1 && scale->dims(1) == heads->first && scale->dims(2) == 1 &&
         scale->dims(3) == heads->second;
}

// Returns the DequantizeLinear behind an operand, with a Mul in between if there is one, if the
// attention can take them in.
std::optional<Rows> RowsOf(const Graph& graph, NodeId attention, int operand,
                           const KnownValues& known) {
  NodeId n = OwnProducer(graph, graph.inputs(attention)[operand]), multiply = kNoNode;
  if (n != kNoNode && graph.Is(n, "Mul")) {
    multiply = n;
    n = OwnProducer(graph, graph.inputs(n)[0]);
  }
  if (n == kNoNode || !graph.Is(n, "DequantizeLinear")) return std::nullopt;
  const auto inputs = graph.inputs(n);
  const onnx::NodeProto& node = graph.node(n);
  const int64_t axis = IntAttribute(node, "axis", 1);
  const bool plain = inputs.size() == 2 || (inputs.size() == 3 && inputs[2] == kNoValue);
  if (!plain || known.type(inputs[0]) != TensorProto::INT8 ||
      known.type(inputs[1]) != TensorProto::FLOAT || known.rank(inputs[0]) != 4 ||
      IntAttribute(node, "output_dtype", 0) != 0) {
    return std::nullopt;
  }
  Rows rows = {inputs[0], inputs[1], IntAttribute(node, "block_size", 0), {n}};
  if (multiply != kNoNode) {
    if (rows.group != 0 || !IsOne(graph.constant(inputs[1]))) return std::nullopt;
    rows.scales = graph.inputs(multiply)[1];
    rows.nodes.push_back(multiply);
    return IsByChannel(graph, multiply, rows) ? std::optional(rows) : std::nullopt;
  }
  const bool blocks = rows.group > 0 && (axis == 3 || axis == -1);
  const bool one = rows.group == 0 && known.rank(inputs[1]) == 0;
  return blocks || one ? std::optional(rows) : std::nullopt;
}

}  // namespace

std::optional<FusedAttention> FuseQuantizedAttention(const Graph& graph, NodeId attention,
                                                     const KnownValues& known) {
  if (!graph.Is(attention, "Attention") || graph.opset() < 23) return std::nullopt;
  const auto inputs = graph.inputs(attention);
  const auto given = [&](int k) {
    return k < static_cast<int>(inputs.size()) && inputs[k] != kNoValue;
  };
  const onnx::NodeProto& node = graph.node(attention);
  const int64_t softmax = IntAttribute(node, "softmax_precision", TensorProto::FLOAT);
  if (!given(kKeys) || !given(kValues) || given(kPastKey) || given(kPastValue) ||
      static_cast<int>(inputs.size()) > kScales || softmax != TensorProto::FLOAT) {
    return std::nullopt;
  }
  for (size_t k = 1; k < graph.outputs(attention).size(); ++k) {
    if (graph.outputs(attention)[k] != kNoValue) return std::nullopt;
  }
  const auto keys = RowsOf(graph, attention, kKeys, known);
  const auto values = RowsOf(graph, attention, kValues, known);
  if (!keys || !values) return std::nullopt;
  FusedAttention fused;
  fused.nodes = keys->nodes;
  fused.nodes.insert(fused.nodes.end(), values->nodes.begin(), values->nodes.end());
  fused.node = node;
  fused.node.set_domain(std::string(kFusedDomain));
  fused.node.set_op_type(std::string(kQuantizedAttention));
  while (fused.node.output_size() > 1) fused.node.mutable_output()->RemoveLast();
  while (fused.node.input_size() < kScales) fused.node.add_input("");
  fused.node.set_input(kKeys, graph.name(keys->stored));
  fused.node.set_input(kValues, graph.name(values->stored));
  fused.node.add_input(graph.name(keys->scales));
  fused.node.add_input(graph.name(values->scales));
  for (const auto& [attribute, size] :
       {std::pair(kKeyGroup, keys->group), std::pair(kValueGroup, values->group)}) {
    onnx::AttributeProto& group = *fused.node.add_attribute();
    group.set_name(attribute);
    group.set_type(onnx::AttributeProto::INT);
    group.set_i(size);
  }
  return fused;
}

}  // namespace kvlift::exec
