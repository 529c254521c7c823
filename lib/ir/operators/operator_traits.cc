#include "ir/operators/operator_traits.h"

#include <algorithm>
#include <array>

#include "ir/graph.h"
#include "onnx/defs/schema.h"

namespace kvlift {
namespace {

using Operands = ElementwiseOperator::Operands;

constexpr auto kElementwise = std::to_array<ElementwiseOperator>({
    {"Abs"},
    {"Acos"},
    {"Acosh"},
    {"Add", Operands::kTwo},
    {"And", Operands::kTwo, false, false, true},
    {"Asin"},
    {"Asinh"},
    {"Atan"},
    {"Atanh"},
    {"BiasGelu", Operands::kTwo, true, true},
    {"BitShift", Operands::kTwo},
    {"BitwiseAnd", Operands::kTwo},
    {"BitwiseNot"},
    {"BitwiseOr", Operands::kTwo},
    {"BitwiseXor", Operands::kTwo},
    {"Cast", Operands::kOne, false},
    {"CastLike", Operands::kOne, false},
    {"Ceil", Operands::kOne, true, false, true},
    {"Celu"},
    {"Clip", Operands::kVariadic, true, false, true},
    {"Cos"},
    {"Cosh"},
    {"Div", Operands::kTwo},
    {"Elu"},
    {"Equal", Operands::kTwo, false, false, true},
    {"Erf"},
    {"Exp"},
    {"FastGelu", Operands::kOne, true, true},
    {"Floor", Operands::kOne, true, false, true},
    {"Gelu"},
    {"Greater", Operands::kTwo, false, false, true},
    {"GreaterOrEqual", Operands::kTwo, false, false, true},
    {"HardSigmoid", Operands::kOne, true, false, true},
    {"HardSwish", Operands::kOne, true, false, true},
    {"Identity"},
    {"IsInf", Operands::kOne, false},
    {"IsNaN", Operands::kOne, false},
    {"LeakyRelu"},
    {"Less", Operands::kTwo, false, false, true},
    {"LessOrEqual", Operands::kTwo, false, false, true},
    {"Log"},
    {"Max", Operands::kVariadic, true, false, true},
    {"Mean", Operands::kVariadic},
    {"Min", Operands::kVariadic, true, false, true},
    {"Mish"},
    {"Mod", Operands::kTwo, true, false, true},
    {"Mul", Operands::kTwo},
    {"Neg"},
    {"Not"},
    {"Or", Operands::kTwo, false, false, true},
    {"PRelu", Operands::kTwo},
    {"Pow", Operands::kTwo},
    {"QuickGelu", Operands::kOne, true, true},
    {"Reciprocal"},
    {"Relu", Operands::kOne, true, false, true},
    {"Round", Operands::kOne, true, false, true},
    {"Selu"},
    {"Shrink", Operands::kOne, true, false, true},
    {"Sigmoid"},
    {"Sign", Operands::kOne, true, false, true},
    {"Sin"},
    {"Sinh"},
    {"Softplus"},
    {"Softsign"},
    {"Sqrt"},
    {"Sub", Operands::kTwo},
    {"Sum", Operands::kVariadic},
    {"Swish"},
    {"Tan"},
    {"Tanh"},
    {"ThresholdedRelu", Operands::kOne, true, false, true},
    {"Where", Operands::kVariadic, false, false, true},
    {"Xor", Operands::kTwo, false},
});
static_assert(std::is_sorted(kElementwise.begin(), kElementwise.end(),
                             [](const ElementwiseOperator& a, const ElementwiseOperator& b) {
                               return a.op_type < b.op_type;
                             }));

}  // namespace

absl::Span<const ElementwiseOperator> ElementwiseOperators() { return kElementwise; }

const ElementwiseOperator* FindElementwise(const onnx::NodeProto& node) {
  const bool is_contrib = node.domain() == "com.microsoft";
  if (!is_contrib && !node.domain().empty() && node.domain() != "ai.onnx") return nullptr;
  const auto* const found = std::lower_bound(
      kElementwise.begin(), kElementwise.end(), node.op_type(),
      [](const ElementwiseOperator& entry, std::string_view name) { return entry.op_type < name; });
  if (found == kElementwise.end() || found->op_type != node.op_type()) return nullptr;
  return found->is_contrib && !is_contrib ? nullptr : found;
}

bool IsComparison(std::string_view op_type) {
  constexpr std::array<std::string_view, 5> kOps = {"Equal", "Greater", "GreaterOrEqual", "Less",
                                                    "LessOrEqual"};
  return std::find(kOps.begin(), kOps.end(), op_type) != kOps.end();
}

bool IsProductOfPackedWeights(std::string_view op_type) {
  return op_type == "MatMulNBits" || op_type == "MatMulBnb4";
}

bool IsGlobalPool(const onnx::NodeProto& node) {
  return (node.domain().empty() || node.domain() == "ai.onnx") &&
         (node.op_type() == "GlobalAveragePool" || node.op_type() == "GlobalMaxPool");
}

std::vector<int> MovedOperands(const onnx::NodeProto& node) {
  const bool standard = node.domain().empty() || node.domain() == "ai.onnx";
  if (!standard || node.output_size() != 1) return {};
  const std::string& op = node.op_type();
  std::vector<int> moved;
  if (op == "Concat") {
    for (int k = 0; k < node.input_size(); ++k) moved.push_back(k);
  } else if (op == "Where") {
    moved = {1, 2};
  } else if (op == "TensorScatter") {
    moved = {0, 1};
  } else if (op == "ScatterND" || op == "ScatterElements") {
    if (StringAttribute(node, "reduction", "none") == "none") moved = {0, 2};
  } else if (op == "Slice" || op == "Transpose" || op == "Reshape" || op == "Unsqueeze" ||
             op == "Squeeze" || op == "Expand" || op == "Gather" || op == "Identity") {
    moved = {0};
  }
  const bool given = std::all_of(moved.begin(), moved.end(), [&](int k) {
    return k < node.input_size() && !node.input(k).empty();
  });
  return given ? moved : std::vector<int>{};
}

bool KeepsElementsApart(const onnx::NodeProto& node) {
  return FindElementwise(node) != nullptr || !MovedOperands(node).empty();
}

bool IsRandomOperator(const onnx::NodeProto& node) {
  constexpr std::string_view kRandom[] = {"Bernoulli",        "Dropout",          "Multinomial",
                                          "RandomNormal",     "RandomNormalLike", "RandomUniform",
                                          "RandomUniformLike"};
  return std::find(std::begin(kRandom), std::end(kRandom), node.op_type()) != std::end(kRandom);
}

bool IsTrainingNormalization(const onnx::NodeProto& node) {
  if (node.op_type() != "BatchNormalization") return false;
  // Before opset 14, further outputs ask for training.
  const auto& attributes = node.attribute();
  return node.output_size() > 1 ||
         std::any_of(attributes.begin(), attributes.end(), [](const auto& attribute) {
           return attribute.name() == "training_mode" && attribute.i() != 0;
         });
}

DefaultAttribute DefaultAttributeOf(const onnx::NodeProto& node, const std::string& name,
                                    int64_t version) {
  if (!node.domain().empty() && node.domain() != "ai.onnx") return {};
  const auto* schema = onnx::OpSchemaRegistry::Schema(node.op_type(), static_cast<int>(version));
  if (schema == nullptr) schema = onnx::OpSchemaRegistry::Schema(node.op_type());
  if (schema == nullptr) return {};
  const auto found = schema->attributes().find(name);
  if (found == schema->attributes().end()) return {};
  const onnx::AttributeProto& value = found->second.default_value;
  return {true, value.type() == onnx::AttributeProto::UNDEFINED ? nullptr : &value};
}

}  // namespace kvlift
