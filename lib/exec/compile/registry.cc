#include <algorithm>
#include <iterator>
#include <string_view>
#include <tuple>
#include <vector>

#include "exec/kernels/common/kernel.h"
#include "exec/kernels/common/tables.h"
#include "exec/kernels/fused/contrib_key_value.h"

namespace kvlift::exec {
namespace {

auto Key(const OpDef& def) { return std::tie(def.domain, def.op_type, def.since_version); }

std::vector<OpDef> Collect() {
  constexpr absl::Span<const OpDef> (*kTables[])() = {ActivationOps,    AttentionOps,
                                                      BitwiseOps,       CastOps,
                                                      ChannelNormOps,   ContribMatMulOps,
                                                      ControlOps,       ConvOps,
                                                      ElementwiseOps,   EmbedOps,
                                                      FusedOps,         GatherOps,
                                                      GroupQueryOps,    IntegerMatMulOps,
                                                      KeyValueCacheOps, LogicOps,
                                                      MatMulOps,        MovementOps,
                                                      MultiHeadOps,     NBitsOps,
                                                      Bnb4Ops,          NormOps,
                                                      PadOps,           QLinearOps,
                                                      QuantizeOps,      QuantizedAttentionOps,
                                                      ReduceOps,        RotaryOps,
                                                      RowsOps,          ScatterOps,
                                                      SearchOps,        ShapeOps,
                                                      SoftmaxOps,       StateOps,
                                                      TensorScatterOps};
  std::vector<OpDef> all;
  for (const auto table : kTables) {
    const absl::Span<const OpDef> ops = table();
    all.insert(all.end(), ops.begin(), ops.end());
  }
  std::sort(all.begin(), all.end(), [](const OpDef& a, const OpDef& b) { return Key(a) < Key(b); });
  return all;
}

const OpDef* the_double = nullptr;

}  // namespace

OpReplacementForTest::OpReplacementForTest(const OpDef& def) : def_(def) { the_double = &def_; }
OpReplacementForTest::~OpReplacementForTest() { the_double = nullptr; }

absl::Span<const OpDef> AllOps() {
  static const auto& ops = *new std::vector<OpDef>(Collect());
  return ops;
}

const OpDef* FindOp(std::string_view domain, std::string_view op_type, int64_t version) {
  if (domain == "ai.onnx") domain = "";
  if (the_double != nullptr && the_double->domain == domain && the_double->op_type == op_type) {
    return the_double;
  }
  const absl::Span<const OpDef> ops = AllOps();
  const auto after =
      std::upper_bound(ops.begin(), ops.end(), version, [&](int64_t v, const OpDef& def) {
        return std::tuple(domain, op_type, v) <
               std::tuple(def.domain, def.op_type, static_cast<int64_t>(def.since_version));
      });
  if (after == ops.begin()) return nullptr;
  const OpDef& def = *std::prev(after);
  return def.domain == domain && def.op_type == op_type ? &def : nullptr;
}

}  // namespace kvlift::exec
