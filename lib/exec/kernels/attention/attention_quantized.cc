#include "exec/kernels/attention/attention_quantized.h"

#include <fmt/format.h>

#include "base/status.h"
#include "exec/kernels/attention/attention_fast.h"
#include "exec/kernels/common/math_util.h"
#include "exec/kernels/common/tables.h"
#include "exec/kernels/elementwise/rows.h"

namespace kvlift::exec {
namespace {

using namespace math;  // NOLINT
using onnx::TensorProto;

constexpr size_t kKeys = 1, kValues = 2, kKeyScales = 7, kValueScales = 8;

// Returns int8 rows and the layout of their scales; InvalidArgument if these do not fit.
absl::StatusOr<KeyRows> RowsWithScales(const KernelContext& context, size_t input, size_t scales,
                                       const char* group, const HeadLayout& layout, int64_t size) {
  KeyRows rows = {context.inputs[input].data, layout};
  const View& s = context.inputs[scales];
  rows.group = IntAttribute(context, group, 0);
  const Shape& shape = context.inputs[input].shape;
  if (rows.group == 0 && shape.size() == 4 && s.type == TensorProto::FLOAT &&
      context.inputs[input].type == TensorProto::INT8) {
    rows.scales = s.data == nullptr ? nullptr : s.as<float>();
    rows.group = s.shape.empty() ? size : 1;
    rows.scale_layout = {0, s.shape.empty() ? 0 : size, 0};
    if (s.shape.empty() || s.shape == Shape({1, shape[1], 1, size})) return rows;
  }
  if (context.inputs[input].type != TensorProto::INT8 || s.type != TensorProto::FLOAT ||
      shape.size() != 4 || rows.group <= 0 || size % rows.group != 0 ||
      s.shape != Shape({shape[0], shape[1], shape[2], size / rows.group})) {
    return Invalid(
        context, fmt::format("scales {} do not fit {}", ShapeString(s.shape), ShapeString(shape)));
  }
  rows.scales = s.data == nullptr ? nullptr : s.as<float>();
  const int64_t token = size / rows.group, head = s.pitch != 0 ? s.pitch : shape[2] * token;
  rows.scale_layout = {shape[1] * head, head, token};
  return rows;
}

absl::Status QuantizedShape(KernelContext& context) {
  KV_ASSIGN_OR_RETURN(const AttentionPlan p, PlanAttentionOfAnyType(context));
  SetSpec(context, 0, context.inputs[0].type,
          p.rank3 ? Shape({p.B, p.S, p.N * p.Dv}) : Shape({p.B, p.N, p.S, p.Dv}));
  return absl::OkStatus();
}

absl::Status QuantizedCompute(KernelContext& context) {
  KV_ASSIGN_OR_RETURN(const AttentionPlan p, PlanAttentionOfAnyType(context));
  if (context.inputs[0].type != TensorProto::FLOAT) {
    return Unsupported(context, "queries of another type than the keys");
  }
  KV_RETURN_IF_ERROR(CheckValidLengths(context, p));
  KV_ASSIGN_OR_RETURN(const KeyRows keys,
                      RowsWithScales(context, kKeys, kKeyScales, kKeyGroup, p.k, p.D));
  KV_ASSIGN_OR_RETURN(const KeyRows values,
                      RowsWithScales(context, kValues, kValueScales, kValueGroup, p.v, p.Dv));
  if (p.N == 0 || p.B == 0 || p.S == 0) return absl::OkStatus();
  AttendFast(context, p, keys, values);
  return absl::OkStatus();
}

}  // namespace

absl::Span<const OpDef> QuantizedAttentionOps() {
  static const OpDef ops[] = {
      {.domain = kFusedDomain,
       .op_type = kQuantizedAttention,
       .since_version = 1,
       .shape = QuantizedShape,
       .compute = QuantizedCompute,
       .pitched_inputs = 1 << kKeys | 1 << kValues | 1 << kKeyScales | 1 << kValueScales},
  };
  return ops;
}

}  // namespace kvlift::exec
