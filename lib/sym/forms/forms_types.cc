// The element types of operator outputs.
#include <string>

#include "absl/container/flat_hash_set.h"
#include "sym/forms/forms_engine.h"

namespace kvlift::sym::internal {
namespace {

using Names = absl::flat_hash_set<std::string>;

const Names& BoolResults() {
  static const Names* const names =
      new Names{"Equal", "Less", "LessOrEqual", "Greater", "GreaterOrEqual", "And",
                "Or",    "Xor",  "Not",         "IsNaN",   "IsInf"};
  return *names;
}

const Names& Int64Results() {
  static const Names* const names = new Names{"Shape", "Size", "ArgMax", "ArgMin", "NonZero"};
  return *names;
}

// Operators whose results have another type than their first input, and for which OutputType has no
// rule.
const Names& Unrelated() {
  static const Names* const names = new Names{"If",
                                              "Loop",
                                              "Scan",
                                              "QuantizeLinear",
                                              "Multinomial",
                                              "RandomNormal",
                                              "RandomUniform",
                                              "Bernoulli",
                                              "StringNormalizer",
                                              "TfIdfVectorizer",
                                              "Optional",
                                              "OptionalGetElement",
                                              "ConcatFromSequence",
                                              "SequenceConstruct",
                                              "SplitToSequence",
                                              "SequenceEmpty",
                                              "SequenceLength",
                                              "BlackmanWindow",
                                              "HannWindow",
                                              "HammingWindow",
                                              "ImageDecoder",
                                              "Unique"};
  return *names;
}

}  // namespace

int32_t OutputType(const Engine& engine, NodeId node, int output) {
  const Graph& graph = engine.graph();
  const onnx::NodeProto& proto = graph.node(node);
  const std::string& op = proto.op_type();
  const auto input = [&](int k) -> int32_t {
    const auto inputs = graph.inputs(node);
    if (k >= static_cast<int>(inputs.size()) || inputs[k] == kNoValue) return 0;
    return engine.TypeOf(inputs[k]);
  };
  const ValueId v = graph.outputs(node)[output];
  if (const int32_t declared = graph.type(v).elem_type) return declared;
  if (op == "GatherBlockQuantized") return input(2);
  if (op == "EmbedLayerNormalization") return output == 1 ? onnx::TensorProto::INT32 : input(2);
  if (op == "QLinearConcat") return input(1);  // the zero point of the result
  if (op == "QLinearWhere") return input(1);
  if (op == "QGemm") return input(8) != 0 ? input(8) : int32_t{onnx::TensorProto::FLOAT};
  if (!proto.domain().empty() && proto.domain() != "ai.onnx") return input(0);
  if (const onnx::TensorProto* constant = graph.constant(v)) return constant->data_type();
  if (BoolResults().contains(op)) return onnx::TensorProto::BOOL;
  if (Int64Results().contains(op)) return onnx::TensorProto::INT64;
  if (op == "Cast") return static_cast<int32_t>(IntAttribute(proto, "to", 0));
  if (op == "CastLike" || op == "Where") return input(1);
  if (op == "OneHot") return input(2);
  if (op == "SequenceAt") {
    const NodeId split = graph.producer(graph.inputs(node)[0]);
    const bool known = split != kNoNode && graph.Is(split, "SplitToSequence");
    return known ? engine.TypeOf(graph.inputs(split)[0]) : 0;
  }
  if (op == "TopK" && output == 1) return onnx::TensorProto::INT64;
  if (op == "Dropout" && output == 1) return onnx::TensorProto::BOOL;
  if (op == "ConstantOfShape") {
    const onnx::AttributeProto* value = FindAttribute(proto, "value");
    return value != nullptr ? value->t().data_type() : onnx::TensorProto::FLOAT;
  }
  if (op == "EyeLike" || op == "RandomNormalLike" || op == "RandomUniformLike") {
    return static_cast<int32_t>(IntAttribute(proto, "dtype", input(0)));
  }
  if (op == "DequantizeLinear") return input(1);
  if (op == "DynamicQuantizeLinear") {
    return output == 1 ? onnx::TensorProto::FLOAT : onnx::TensorProto::UINT8;
  }
  if (op == "MatMulInteger" || op == "ConvInteger") return onnx::TensorProto::INT32;
  if (op == "MatMulIntegerToFloat") return onnx::TensorProto::FLOAT;
  if (op == "QLinearMatMul") return input(7);  // the zero point of the result
  if (op == "Attention" && output == 2) return input(2);
  if (op == "Attention" && output == 1) return input(1);
  if (Unrelated().contains(op)) return 0;
  return input(0);
}

}  // namespace kvlift::sym::internal
