// LIBS: exec onnxio
// Operators whose operands all have one shape accept every element type of their schema.
#include "ir/types.h"

#include <cstring>
#include <set>
#include <string>
#include <vector>

#include "exec/kernel_harness.h"
#include "fmt/format.h"
#include "gtest/gtest.h"
#include "onnx/defs/data_type_utils.h"
#include "onnx/defs/schema.h"

namespace kvlift::exec {
namespace {

constexpr int kOpset = 24;

const char* const kOperators[] = {"Abs",
                                  "Add",
                                  "ArgMax",
                                  "ArgMin",
                                  "BitShift",
                                  "BitwiseAnd",
                                  "BitwiseNot",
                                  "BitwiseOr",
                                  "BitwiseXor",
                                  "Ceil",
                                  "Clip",
                                  "Concat",
                                  "Cos",
                                  "Div",
                                  "Einsum",
                                  "Equal",
                                  "Erf",
                                  "Exp",
                                  "EyeLike",
                                  "Floor",
                                  "Gelu",
                                  "Gemm",
                                  "Greater",
                                  "GreaterOrEqual",
                                  "HardSigmoid",
                                  "HardSwish",
                                  "Hardmax",
                                  "IsInf",
                                  "IsNaN",
                                  "LayerNormalization",
                                  "LeakyRelu",
                                  "Less",
                                  "LessOrEqual",
                                  "Log",
                                  "LogSoftmax",
                                  "MatMul",
                                  "Max",
                                  "Mean",
                                  "Min",
                                  "Mish",
                                  "Mod",
                                  "Mul",
                                  "Neg",
                                  "NonZero",
                                  "Not",
                                  "PRelu",
                                  "Pow",
                                  "RMSNormalization",
                                  "Reciprocal",
                                  "ReduceL1",
                                  "ReduceL2",
                                  "ReduceLogSum",
                                  "ReduceLogSumExp",
                                  "ReduceMax",
                                  "ReduceMean",
                                  "ReduceMin",
                                  "ReduceProd",
                                  "ReduceSum",
                                  "ReduceSumSquare",
                                  "Relu",
                                  "Round",
                                  "Shape",
                                  "Sigmoid",
                                  "Sign",
                                  "Sin",
                                  "Size",
                                  "Softmax",
                                  "Softplus",
                                  "Split",
                                  "Sqrt",
                                  "Sub",
                                  "Sum",
                                  "Swish",
                                  "Tan",
                                  "Tanh",
                                  "Transpose",
                                  "Trilu",
                                  "Where",
                                  "Xor"};

int32_t TypeOf(const std::string& name) {
  return onnx::Utils::DataTypeUtils::ToTypeProto(onnx::Utils::DataTypeUtils::ToType(name))
      .tensor_type()
      .elem_type();
}

// Two operands at least where the schema has two; ones, which suit every operator.
absl::Status RunWith(const onnx::OpSchema& schema, int32_t type) {
  OpRun run(schema.Name(), kOpset);
  for (const auto& [name, attribute] : schema.attributes()) {
    if (name == "direction") run.String(name, "LEFT");
    if (name == "equation") run.String(name, "ij,jk->ik");
    if (name == "axis" && schema.Name() == "Concat") run.Int(name, 0);
    if (name == "fmod") run.Int(name, IsFloatType(type) ? 1 : 0);
  }
  std::vector<Tensor> inputs;
  const auto& formal = schema.inputs();
  for (int i = 0; i < static_cast<int>(formal.size()); ++i) {
    if (formal[i].GetOption() == onnx::OpSchema::Optional) break;
    const bool variable = formal[0].GetTypeStr() == formal[i].GetTypeStr();
    const bool is_condition = schema.Name() == std::string("Where") && i == 0;
    const int32_t own = is_condition ? int32_t{onnx::TensorProto::BOOL}
                        : variable || formal[i].GetTypes().size() > 1
                            ? type
                            : TypeOf(**formal[i].GetTypes().begin());
    const int copies = formal[i].GetOption() == onnx::OpSchema::Variadic ? 2 : 1;
    for (int k = 0; k < copies; ++k) {
      Tensor t(own, {2, 2});
      std::memset(t.data(), 0, static_cast<size_t>(t.view().bytes()));
      if (own == onnx::TensorProto::FLOAT) t.span<float>()[0] = 1;
      if (IsFloatType(own) || own == onnx::TensorProto::BOOL) {
        inputs.push_back(std::move(t));
        continue;
      }
      for (int64_t b = 0; b < t.view().bytes(); ++b) t.data()[b] = std::byte{1};
      inputs.push_back(std::move(t));
    }
  }
  return run.Run(std::move(inputs)).status();
}

TEST(ExecTypes, EveryTypeOfTheSchema) {
  std::set<std::string> missing;
  for (const char* op : kOperators) {
    const onnx::OpSchema* schema = onnx::OpSchemaRegistry::Schema(op, kOpset, "");
    ASSERT_NE(schema, nullptr) << op;
    for (const auto& type : schema->inputs()[std::string(op) == "Where" ? 1 : 0].GetTypes()) {
      if (type->find("tensor(") != 0 || type->find("string") != std::string::npos ||
          type->find("complex") != std::string::npos) {
        continue;
      }
      const absl::Status status = RunWith(*schema, TypeOf(*type));
      if (!status.ok())
        missing.insert(fmt::format("{} {}: {}", op, *type, std::string(status.message())));
    }
  }
  std::string all;
  for (const std::string& one : missing) all += one + "\n";
  EXPECT_EQ(all, "");
}

}  // namespace
}  // namespace kvlift::exec
