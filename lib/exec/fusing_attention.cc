#include "exec/fusing_attention.h"

#include <string>
#include <utility>

#include "exec/kernels/attention_quantized.h"
#include "exec/kernels/rows.h"

namespace kvlift::exec {
namespace {

using onnx::TensorProto;

constexpr int kKeys = 1, kValues = 2, kPastKey = 4, kPastValue = 5, kScales = 7;

// The DequantizeLinear behind an operand, if the attention can take it in.
NodeId DequantizeOf(const Graph& graph, NodeId attention, int operand, const KnownValues& known) {
  const ValueId v = graph.inputs(attention)[operand];
  const NodeId n = v == kNoValue ? kNoNode : graph.producer(v);
  if (n == kNoNode || !graph.Is(n, "DequantizeLinear") || graph.is_graph_output(v) ||
      graph.uses(v).size() != 1 || graph.uses(v)[0].kind != Use::Kind::kNodeInput) {
    return kNoNode;
  }
  const auto inputs = graph.inputs(n);
  const onnx::NodeProto& node = graph.node(n);
  const int64_t axis = IntAttribute(node, "axis", 1);
  const bool plain = inputs.size() == 2 || (inputs.size() == 3 && inputs[2] == kNoValue);
  const bool fits = plain && known.type(inputs[0]) == TensorProto::INT8 &&
                    known.type(inputs[1]) == TensorProto::FLOAT && known.rank(inputs[0]) == 4 &&
                    (axis == 3 || axis == -1) && IntAttribute(node, "block_size", 0) > 0 &&
                    IntAttribute(node, "output_dtype", 0) == 0;
  return fits ? n : kNoNode;
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
  FusedAttention fused;
  fused.keys = DequantizeOf(graph, attention, kKeys, known);
  fused.values = DequantizeOf(graph, attention, kValues, known);
  if (fused.keys == kNoNode || fused.values == kNoNode) return std::nullopt;
  const auto name = [&](NodeId n, int k) { return graph.name(graph.inputs(n)[k]); };
  fused.node = node;
  fused.node.set_domain(std::string(kFusedDomain));
  fused.node.set_op_type(std::string(kQuantizedAttention));
  while (fused.node.output_size() > 1) fused.node.mutable_output()->RemoveLast();
  while (fused.node.input_size() < kScales) fused.node.add_input("");
  fused.node.set_input(kKeys, name(fused.keys, 0));
  fused.node.set_input(kValues, name(fused.values, 0));
  fused.node.add_input(name(fused.keys, 1));
  fused.node.add_input(name(fused.values, 1));
  for (const auto& [attribute, from] :
       {std::pair(kKeyGroup, fused.keys), std::pair(kValueGroup, fused.values)}) {
    onnx::AttributeProto& group = *fused.node.add_attribute();
    group.set_name(attribute);
    group.set_type(onnx::AttributeProto::INT);
    group.set_i(IntAttribute(graph.node(from), "block_size", 0));
  }
  return fused;
}

}  // namespace kvlift::exec
