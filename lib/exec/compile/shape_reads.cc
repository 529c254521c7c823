#include "exec/compile/shape_reads.h"

#include <initializer_list>
#include <string>
#include <string_view>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_split.h"
#include "onnxio/model/functional_form.h"

namespace kvlift::exec {
namespace {

using Names = absl::flat_hash_set<std::string>;

Names Words(std::string_view text) {
  return absl::StrSplit(absl::string_view(text.data(), text.size()), ' ');
}

// The operators below have these properties in every domain, so domains are not compared.
const Names& OfShapesOnly() {
  static const auto& names = *new Names(
      Words("Abs Acos Acosh Add And ArgMax ArgMin Asin Asinh Atan Atanh Attention "
            "BatchNormalization BiasGelu BitCast BitShift BitwiseAnd BitwiseNot BitwiseOr "
            "BitwiseXor Cast CastLike CausalConvWithState Ceil Celu Clip Concat Constant Conv Cos "
            "Cosh DequantizeLinear Div DynamicQuantizeLinear DynamicQuantizeMatMul Einsum Elu "
            "EmbedLayerNormalization Equal Erf Exp EyeLike FastGelu Flatten Floor FusedConv "
            "FusedGemm FusedMatMul GatedRMSNorm Gather "
            "GatherBlockQuantized GatherElements GatherND Gelu Gemm "
            "Greater GreaterOrEqual GroupNormalization HardSigmoid HardSwish Hardmax Identity "
            "InstanceNormalization IsInf IsNaN LayerNormalization LeakyRelu Less LessOrEqual "
            "LinearAttention LinearAttentionGate Log LogSoftmax LpNormalization "
            "MRotaryEmbedding MatMul MatMulInteger "
            "MatMulBnb4 MatMulIntegerToFloat MatMulNBits Max Mean Min Mish Mod Mul Neg "
            "Not Or PRelu Pointwise Pow Product QGemm QLinearAdd QLinearConcat QLinearLeakyRelu "
            "QLinearMatMul QLinearMul QLinearSigmoid QLinearSoftmax QLinearWhere QuantizeLinear "
            "QuantizedAttention "
            "QuickGelu RMSNormalization Reciprocal Relu RotaryEmbedding Round Rows Scatter "
            "ScatterElements ScatterND Selu Shape Shrink "
            "Sigmoid Sign SimplifiedLayerNormalization Sin Sinh Size SkipLayerNormalization "
            "SkipSimplifiedLayerNormalization Softmax Softplus Softsign Sqrt Sub Sum Swish Tan "
            "Tanh TensorScatter ThresholdedRelu Transpose TransposeMatMul Trilu Where Xor"));
  return names;
}

bool Lists(const Names& names, std::string_view name) {
  return names.contains(absl::string_view(name.data(), name.size()));
}

constexpr uint32_t InputBits(std::initializer_list<int> inputs) {
  uint32_t mask = 0;
  for (const int i : inputs) mask |= uint32_t{1} << i;
  return mask;
}

using Reads = absl::flat_hash_map<std::string_view, uint32_t>;
const Reads& OfElementsToo() {
  static const auto& reads = *new Reads{{"Compress", InputBits({1})},
                                        {"ConstantOfShape", InputBits({0})},
                                        {"CumProd", InputBits({1})},
                                        {"CumSum", InputBits({1})},
                                        {"Dropout", InputBits({1, 2})},
                                        {"Expand", InputBits({1})},
                                        {"KeyValueCache", InputBits({2})},
                                        {"NonZero", InputBits({0})},
                                        {"OneHot", InputBits({1})},
                                        {"Pad", InputBits({1, 3})},
                                        {"Range", InputBits({0, 1, 2})},
                                        {"ReduceL1", InputBits({1})},
                                        {"ReduceL2", InputBits({1})},
                                        {"ReduceLogSum", InputBits({1})},
                                        {"ReduceLogSumExp", InputBits({1})},
                                        {"ReduceMax", InputBits({1})},
                                        {"ReduceMean", InputBits({1})},
                                        {"ReduceMin", InputBits({1})},
                                        {"ReduceProd", InputBits({1})},
                                        {"ReduceSum", InputBits({1})},
                                        {"ReduceSumSquare", InputBits({1})},
                                        {"Reshape", InputBits({1})},
                                        {"Slice", InputBits({1, 2, 3, 4})},
                                        {"Split", InputBits({1})},
                                        {"Squeeze", InputBits({1})},
                                        {"Tile", InputBits({1})},
                                        {"TopK", InputBits({1})},
                                        {"Unsqueeze", InputBits({1})},
                                        {"GroupQueryAttention", InputBits({5, 6})},
                                        {"MultiHeadAttention", InputBits({8})}};
  return reads;
}

}  // namespace

uint32_t ShapeReads(const OpDef& def) {
  if (Lists(OfShapesOnly(), def.op_type)) return 0;
  if (def.op_type == "KeyValueCache" && JoinsSequences(def.domain)) {
    return InputBits({KeyValueCacheSlots::Joined().kvstarts});
  }
  const auto it = OfElementsToo().find(def.op_type);
  return it == OfElementsToo().end() ? kReadsAll : it->second;
}

bool IsIndexArithmetic(const OpDef& def) {
  static const auto& names = *new Names(
      Words("Abs Add And Cast Ceil Concat ConstantOfShape CumSum Div Equal Expand Flatten Floor "
            "Gather GatherElements Greater GreaterOrEqual Identity Less LessOrEqual Max Min Mod "
            "Mul Neg Not Or Range ReduceMax ReduceMin ReduceProd ReduceSum Reshape Round Shape "
            "Sign Size Slice Split Squeeze Sub Tile Transpose Unsqueeze Where Xor"));
  return Lists(names, def.op_type);
}

bool IsOfShapeAlone(const OpDef& def) { return def.op_type == "Shape" || def.op_type == "Size"; }

}  // namespace kvlift::exec
