// LIBS: exec onnxio
// Every operator that a decoder export may hold has a kernel, or a body by which ONNX defines it,
// at every opset from 7 on that has the operator.
#include <string>
#include <vector>

#include "exec/kernels/common/kernel.h"
#include "fmt/format.h"
#include "gtest/gtest.h"
#include "onnx/defs/schema.h"

namespace kvlift::exec {
namespace {

constexpr int kFirstOpset = 7, kLastOpset = 28;

const char* const kOperators[] = {"Abs",
                                  "Add",
                                  "And",
                                  "ArgMax",
                                  "ArgMin",
                                  "Attention",
                                  "BitShift",
                                  "BitwiseAnd",
                                  "BitwiseNot",
                                  "BitwiseOr",
                                  "BitwiseXor",
                                  "Cast",
                                  "CastLike",
                                  "Ceil",
                                  "Celu",
                                  "Clip",
                                  "Concat",
                                  "Constant",
                                  "ConstantOfShape",
                                  "Conv",
                                  "Cos",
                                  "CumSum",
                                  "DequantizeLinear",
                                  "Div",
                                  "Dropout",
                                  "DynamicQuantizeLinear",
                                  "Einsum",
                                  "Elu",
                                  "Equal",
                                  "Erf",
                                  "Exp",
                                  "Expand",
                                  "EyeLike",
                                  "Flatten",
                                  "Floor",
                                  "Gather",
                                  "GatherElements",
                                  "GatherND",
                                  "Gelu",
                                  "Gemm",
                                  "Greater",
                                  "GreaterOrEqual",
                                  "GroupNormalization",
                                  "HardSigmoid",
                                  "HardSwish",
                                  "Hardmax",
                                  "Identity",
                                  "If",
                                  "IsInf",
                                  "IsNaN",
                                  "LayerNormalization",
                                  "LeakyRelu",
                                  "Less",
                                  "LessOrEqual",
                                  "Log",
                                  "LogSoftmax",
                                  "Loop",
                                  "MatMul",
                                  "MatMulInteger",
                                  "Max",
                                  "Mean",
                                  "Min",
                                  "Mish",
                                  "Mod",
                                  "Mul",
                                  "Neg",
                                  "NonZero",
                                  "Not",
                                  "OneHot",
                                  "Or",
                                  "PRelu",
                                  "Pad",
                                  "Pow",
                                  "QLinearMatMul",
                                  "QuantizeLinear",
                                  "RMSNormalization",
                                  "Range",
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
                                  "Reshape",
                                  "RotaryEmbedding",
                                  "Round",
                                  "Scan",
                                  "Scatter",
                                  "ScatterElements",
                                  "ScatterND",
                                  "Selu",
                                  "Shape",
                                  "Shrink",
                                  "Sigmoid",
                                  "Sign",
                                  "Sin",
                                  "Size",
                                  "Slice",
                                  "Softmax",
                                  "Softplus",
                                  "Softsign",
                                  "Split",
                                  "Sqrt",
                                  "Squeeze",
                                  "Sub",
                                  "Sum",
                                  "Swish",
                                  "Tan",
                                  "Tanh",
                                  "TensorScatter",
                                  "ThresholdedRelu",
                                  "Tile",
                                  "TopK",
                                  "Transpose",
                                  "Trilu",
                                  "Unsqueeze",
                                  "Where",
                                  "Xor"};

const char* const kContrib[] = {"Attention",
                                "BiasGelu",
                                "DequantizeLinear",
                                "EmbedLayerNormalization",
                                "FastGelu",
                                "FusedMatMul",
                                "GatherBlockQuantized",
                                "Gelu",
                                "GroupQueryAttention",
                                "MatMulBnb4",
                                "MatMulNBits",
                                "MultiHeadAttention",
                                "QuantizeLinear",
                                "QuickGelu",
                                "RotaryEmbedding",
                                "SimplifiedLayerNormalization",
                                "SkipLayerNormalization",
                                "SkipSimplifiedLayerNormalization"};

TEST(ExecCoverage, OperatorsOfDecoders) {
  std::vector<std::string> missing;
  for (const char* op : kOperators) {
    EXPECT_NE(onnx::OpSchemaRegistry::Schema(op, kLastOpset, ""), nullptr) << op;
    for (int opset = kFirstOpset; opset <= kLastOpset; ++opset) {
      const onnx::OpSchema* schema = onnx::OpSchemaRegistry::Schema(op, opset, "");
      if (schema == nullptr || FindOp("", op, opset) != nullptr ||
          schema->GetFunction(opset) != nullptr ||
          schema->HasContextDependentFunctionWithOpsetVersion(opset)) {
        continue;
      }
      missing.push_back(fmt::format("{}-{}", op, opset));
    }
  }
  // Scan-8 has a batch dimension and lengths; no exporter in use writes it.
  EXPECT_EQ(missing, std::vector<std::string>({"Scan-8"}));
}

TEST(ExecCoverage, OperatorsOfOnnxRuntime) {
  for (const char* op : kContrib) EXPECT_NE(FindOp("com.microsoft", op, 1), nullptr) << op;
  EXPECT_NE(FindOp("", "SimplifiedLayerNormalization", 21), nullptr);
}

}  // namespace
}  // namespace kvlift::exec
