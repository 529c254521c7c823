// The table of operators and the functions that compute their forms.
#include "absl/container/flat_hash_map.h"
#include "ir/operators/operator_traits.h"
#include "sym/forms/forms_engine.h"

namespace kvlift::sym::internal {
namespace {

using Table = absl::flat_hash_map<std::string, OpFn>;

void AddLookedThrough(Table& table) {
  table.insert({{"Identity", OpIdentity},
                {"Shape", OpShape},
                {"Size", OpSize},
                {"Reshape", OpReshape},
                {"Flatten", OpFlatten},
                {"Squeeze", OpSqueeze},
                {"Unsqueeze", OpUnsqueeze},
                {"Expand", OpExpand},
                {"Tile", OpTile},
                {"ConstantOfShape", OpConstantOfShape},
                {"Range", OpRange},
                {"Concat", OpConcat},
                {"Split", OpSplit},
                {"SequenceAt", OpSequenceAt},
                {"Slice", OpSlice},
                {"Transpose", OpTranspose},
                {"Gather", OpGather},
                {"GatherND", OpGatherND},
                {"GatherElements", OpGatherElements},
                {"Pad", OpPad},
                {"Trilu", OpTrilu},
                {"CumSum", OpCumSum},
                {"OneHot", OpOneHot},
                {"EyeLike", OpEyeLike},
                {"ScatterND", OpScatterND},
                {"ScatterElements", OpScatterElements},
                {"TensorScatter", OpTensorScatter},
                {"Where", OpWhere},
                {"Cast", OpCast},
                {"CastLike", OpCast},
                {"Clip", OpClip},
                {"Min", OpMinMax},
                {"Max", OpMinMax},
                {"Not", OpNot},
                {"Log", OpLog},
                {"Dropout", OpDropout}});
  for (const char* op : {"Add", "Sub", "Mul", "Div", "Mod"}) table[op] = OpArithmetic;
  for (const char* op : {"Equal", "Less", "LessOrEqual", "Greater", "GreaterOrEqual"}) {
    table[op] = OpCompare;
  }
  for (const char* op : {"And", "Or", "Xor"}) table[op] = OpLogic;
  for (const char* op : {"Neg", "Abs", "Sign", "Floor", "Ceil", "Round"}) {
    table[op] = OpNegate;
  }
}

void AddOpaque(Table& table) {
  // Operators that are looked through have entries already.
  for (const ElementwiseOperator& op : ElementwiseOperators()) {
    if (op.is_contrib) continue;
    table.try_emplace(std::string(op.op_type),
                      op.operands == ElementwiseOperator::Operands::kOne   ? OpSameShape
                      : op.operands == ElementwiseOperator::Operands::kTwo ? OpBinary
                                                                           : OpVariadic);
  }
  for (const char* op :
       {"BatchNormalization", "Bernoulli", "GroupNormalization", "Hardmax", "InstanceNormalization",
        "LogSoftmax", "LpNormalization", "LRN", "MeanVarianceNormalization", "QuantizeLinear",
        "RandomNormalLike", "RandomUniformLike", "RotaryEmbedding", "Softmax"}) {
    table[op] = OpSameShape;
  }
  for (const char* op :
       {"LayerNormalization", "RMSNormalization", "SimplifiedLayerNormalization"}) {
    table[op] = OpLayerNorm;
  }
  for (const char* op :
       {"ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceL1", "ReduceL2",
        "ReduceLogSum", "ReduceLogSumExp", "ReduceSumSquare"}) {
    table[op] = OpReduce;
  }
  for (const char* op : {"GlobalAveragePool", "GlobalMaxPool"}) table[op] = OpGlobalPool;
  for (const char* op : {"ArgMax", "ArgMin"}) table[op] = OpArgReduce;
  for (const char* op : {"RandomNormal", "RandomUniform"}) table[op] = OpRandom;
  table.insert({{"MatMul", OpMatMul},
                {"MatMulInteger", OpMatMul},
                {"QLinearMatMul", OpQLinearMatMul},
                {"Gemm", OpGemm},
                {"DynamicQuantizeLinear", OpDynamicQuantizeLinear},
                {"DequantizeLinear", OpDequantizeLinear},
                {"TopK", OpTopK},
                {"Einsum", OpEinsum},
                {"Conv", OpConv},
                {"NonZero", OpNonZero},
                {"If", OpIf},
                {"CausalConvWithState", OpStateConvolution},
                {"LinearAttention", OpLinearAttention},
                {"Attention", OpAttentionOp}});
}

// Operators of ONNX Runtime that stand between standard ones in optimised exports. Only their
// shapes are known.
const Table& ContribTable() {
  static const Table* const table = [] {
    auto* t = new Table;
    for (const char* op : {"BiasGelu", "FastGelu", "GatedRMSNorm", "Gelu", "MRotaryEmbedding",
                           "MoE", "QLinearLeakyRelu", "QLinearSigmoid", "QLinearSoftmax", "QMoE",
                           "QuickGelu", "RotaryEmbedding"}) {
      (*t)[op] = OpSameShape;
    }
    for (const char* op : {"SkipLayerNormalization", "SkipSimplifiedLayerNormalization"}) {
      (*t)[op] = OpSkipNorm;
    }
    (*t)["SimplifiedLayerNormalization"] = OpLayerNorm;
    (*t)["EmbedLayerNormalization"] = OpEmbedNorm;
    (*t)["GroupQueryAttention"] = OpGroupQueryAttention;
    (*t)["MultiHeadAttention"] = OpMultiHeadAttention;
    (*t)["Attention"] = OpProjectedAttention;
    for (const char* op : {"FusedMatMul", "MatMulIntegerToFloat", "DynamicQuantizeMatMul"}) {
      (*t)[op] = OpMatMul;
    }
    (*t)["FusedGemm"] = OpGemm;
    for (const char* op : {"QLinearAdd", "QLinearMul"}) (*t)[op] = OpQLinearBinary;
    (*t)["QLinearConcat"] = OpQLinearConcat;
    (*t)["QLinearWhere"] = OpQLinearWhere;
    (*t)["QGemm"] = OpQGemm;
    (*t)["MatMulNBits"] = OpMatMulNBits;
    (*t)["MatMulBnb4"] = OpMatMulNBits;
    (*t)["GatherBlockQuantized"] = OpGatherBlockQuantized;
    (*t)["CausalConvWithState"] = OpStateConvolution;
    (*t)["LinearAttention"] = OpLinearAttention;
    (*t)["LinearAttentionGate"] = OpLinearAttentionGate;
    (*t)["GatedDeltaNet"] = OpGatedDeltaNet;
    return t;
  }();
  return *table;
}

// KeyValueCache of OpenPPL: rows [B, S, Nk, D] at a start position give keys and values [B, start +
// S, Nk * num_repeat, D]. The tensors that are written keep their shapes.
void OpKeyValueCache(OpContext& c) {
  constexpr int kStart = 2, kCache = 3, kPresentCache = 2;
  if (!c.Known(2) || c.in(0).rank() != 4) return;
  Pool& pool = c.pool();
  const auto start = c.Elements(kStart);
  Shape all = c.in(0).form.shape;
  const bool known = start && start->size() == 1;
  all[1] = known ? pool.Add(start->front(), all[1]) : c.engine().OwnDim(c.output(0), 1);
  all[2] = pool.Mul(pool.Integer(c.Int("num_repeat", 1)), all[2]);
  for (int k = 0; k < kPresentCache; ++k) c.SetOpaque(k, all);
  for (int k = kPresentCache; k < c.num_outputs(); ++k) {
    const int tensor = k - kPresentCache + kCache;
    if (c.has(tensor) && c.in(tensor).form.known_rank) c.SetOpaque(k, c.in(tensor).form.shape);
  }
}

// KeyValueCache of OpenPPL's dynamic batching: rows [sum of all S, Nk, D] give keys and values with
// as many rows as the last element of kvstarts.
void OpJoinedKeyValueCache(OpContext& c) {
  constexpr int kKvStarts = 3, kCache = 8, kPresentCache = 2;
  if (!c.Known(2) || c.in(0).rank() != 3) return;
  Pool& pool = c.pool();
  const auto starts = c.Elements(kKvStarts);
  Shape all = c.in(0).form.shape;
  all[0] = starts && !starts->empty() ? starts->back() : c.engine().OwnDim(c.output(0), 0);
  all[1] = pool.Mul(pool.Integer(c.Int("num_repeat", 1)), all[1]);
  for (int k = 0; k < kPresentCache; ++k) c.SetOpaque(k, all);
  for (int k = kPresentCache; k < c.num_outputs(); ++k) {
    const int tensor = k - kPresentCache + kCache;
    if (c.has(tensor) && c.in(tensor).form.known_rank) c.SetOpaque(k, c.in(tensor).form.shape);
  }
}

const Table& StandardTable() {
  static const Table* const table = [] {
    auto* t = new Table;
    AddLookedThrough(*t);
    AddOpaque(*t);
    return t;
  }();
  return *table;
}

}  // namespace

OpFn FindOp(const std::string& domain, const std::string& op_type) {
  const bool standard = domain.empty() || domain == "ai.onnx";
  const bool openppl = domain == "pmx" || domain == "opmx";
  if (openppl && op_type == "KeyValueCache") return OpKeyValueCache;
  const bool joins = domain == "pmx.dynamic_batching" || domain == "opmx.dynamic_batching";
  if (joins && op_type == "KeyValueCache") return OpJoinedKeyValueCache;
  if (!standard && domain != "com.microsoft") return nullptr;
  const Table& table = standard ? StandardTable() : ContribTable();
  const auto it = table.find(op_type);
  return it == table.end() ? nullptr : it->second;
}

}  // namespace kvlift::sym::internal
