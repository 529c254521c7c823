// QuantizeLinear and DequantizeLinear. There is one scale (and zero point) for the tensor, one per
// index of an axis, or one per block of an axis.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/status.h"
#include "exec/kernels/common/math_util.h"
#include "exec/kernels/common/move_util.h"
#include "exec/kernels/common/tables.h"
#include "exec/memory/small_types.h"
#include "ir/types.h"

namespace kvlift::exec {
namespace {

using namespace math;  // NOLINT
using onnx::TensorProto;

// The index of the scale of every element.
struct Scales {
  int64_t n = 1, inner = 1;  // size of the axis, and elements behind it; 1 and 1 for a single scale
  int64_t block = 0;         // 0: one scale per index of the axis
  int64_t blocks = 1;
  bool single = true;

  int64_t At(int64_t i) const {
    if (single) return 0;
    const int64_t at = i / inner % n;
    return block == 0 ? at : (i / inner / n * blocks + at / block) * inner + i % inner;
  }
};

absl::StatusOr<Scales> PlanScales(const KernelContext& context) {
  const View& x = context.inputs[0];
  const View& scale = context.inputs[1];
  if (HasInput(context, 2) && context.inputs[2].size() != scale.size()) {
    return Invalid(context, "zero point and scale differ in shape");
  }
  Scales plan;
  const int64_t block = IntAttribute(context, "block_size", 0);
  if (block == 0 && scale.size() == 1) return plan;
  KV_ASSIGN_OR_RETURN(const int64_t axis,
                      move::Axis(context, "axis", 1, static_cast<int64_t>(x.shape.size())));
  const auto a = static_cast<size_t>(axis);
  plan.single = false;
  plan.n = x.shape[a];
  plan.inner = move::Product(x.shape, a + 1, x.shape.size());
  Shape wanted = {plan.n};
  if (block != 0) {
    plan.block = std::max<int64_t>(1, block);
    plan.blocks = (plan.n + plan.block - 1) / plan.block;
    wanted = x.shape;
    wanted[a] = plan.blocks;
  }
  if (scale.shape != wanted) {
    return Invalid(context, fmt::format("scale {} does not fit {}", ShapeString(scale.shape),
                                        ShapeString(x.shape)));
  }
  return plan;
}

int32_t QuantizedType(const KernelContext& context) {
  const auto asked = static_cast<int32_t>(IntAttribute(context, "output_dtype", 0));
  if (asked != 0) return asked;
  return HasInput(context, 2) ? context.inputs[2].type : int32_t{TensorProto::UINT8};
}

absl::Status QuantizeShape(KernelContext& context) {
  KV_RETURN_IF_ERROR(NeedInputs(context, 2));
  KV_RETURN_IF_ERROR(PlanScales(context).status());
  const int32_t type = QuantizedType(context);
  if (!IsSmallInteger(type) && !IsSmallFloat(type)) {
    return Unsupported(context, fmt::format("quantizing to {}", ElementTypeName(type)));
  }
  SetSpec(context, 0, type, context.inputs[0].shape);
  return absl::OkStatus();
}

// Returns x / scale in the type that the operator divides in.
float Quotient(const KernelContext& context, double x, double scale) {
  const auto quotient = static_cast<float>(static_cast<float>(x) / static_cast<float>(scale));
  if (context.opset < 23) return quotient;
  int32_t type = static_cast<int32_t>(IntAttribute(context, "precision", 0));
  if (type == 0) type = context.inputs[1].type;
  if (type == TensorProto::FLOAT16) return HalfToFloat(FloatToHalf(quotient));
  if (type == TensorProto::BFLOAT16) return BfloatToFloat(FloatToBfloat(quotient));
  return quotient;
}

absl::Status QuantizeCompute(KernelContext& context) {
  KV_ASSIGN_OR_RETURN(const Scales scales, PlanScales(context));
  const View& x = context.inputs[0];
  const View& out = context.outputs[0];
  const bool zero = HasInput(context, 2), saturate = IntAttribute(context, "saturate", 1) != 0;
  if (out.size() > 0) std::memset(out.data, 0, static_cast<size_t>(out.bytes()));
  for (int64_t i = 0; i < out.size(); ++i) {
    const int64_t at = scales.At(i);
    const float q =
        Quotient(context, ElementAsDouble(x, i), ElementAsDouble(context.inputs[1], at));
    if (IsSmallFloat(out.type)) {
      const float shift = zero ? SmallFloatAt(context.inputs[2], at) : 0;
      SetSmallFloat(out, i, q + shift, saturate);
      continue;
    }
    const IntegerRange range = RangeOf(out.type);
    const double shift = zero ? static_cast<double>(SmallIntegerAt(context.inputs[2], at)) : 0;
    const double value = std::nearbyint(static_cast<double>(q)) + shift;
    const auto low = static_cast<double>(range.low), high = static_cast<double>(range.high);
    SetSmallInteger(out, i,
                    std::isnan(value) ? 0 : static_cast<int64_t>(std::clamp(value, low, high)));
  }
  return absl::OkStatus();
}

absl::Status DequantizeShape(KernelContext& context) {
  KV_RETURN_IF_ERROR(NeedInputs(context, 2));
  KV_RETURN_IF_ERROR(PlanScales(context).status());
  const int32_t type = context.inputs[0].type;
  if (!IsSmallInteger(type) && !IsSmallFloat(type)) {
    return Unsupported(context, fmt::format("dequantizing {}", ElementTypeName(type)));
  }
  if (HasInput(context, 2) && context.inputs[2].type != type) {
    return Invalid(context, "zero point and data differ in type");
  }
  const auto asked = static_cast<int32_t>(IntAttribute(context, "output_dtype", 0));
  SetSpec(context, 0, asked != 0 ? asked : context.inputs[1].type, context.inputs[0].shape);
  return absl::OkStatus();
}

absl::Status DequantizeCompute(KernelContext& context) {
  KV_ASSIGN_OR_RETURN(const Scales scales, PlanScales(context));
  const View& x = context.inputs[0];
  const bool zero = HasInput(context, 2);
  return VisitFloat(context.outputs[0].type, [&](auto tag) {
    using T = typename decltype(tag)::Type;
    T* y = context.outputs[0].as<T>();
    for (int64_t i = 0; i < x.size(); ++i) {
      const int64_t at = scales.At(i);
      float value = 0;
      if (IsSmallFloat(x.type)) {
        value = SmallFloatAt(x, i) - (zero ? SmallFloatAt(context.inputs[2], at) : 0);
      } else {
        value = static_cast<float>(SmallIntegerAt(x, i) -
                                   (zero ? SmallIntegerAt(context.inputs[2], at) : 0));
      }
      const auto scale = static_cast<float>(ElementAsDouble(context.inputs[1], at));
      y[i] = Narrow<T>(static_cast<Compute<T>>(value * scale));
    }
    return absl::OkStatus();
  });
}

}  // namespace

absl::Span<const OpDef> QuantizeOps() {
  static const OpDef ops[] = {
      {"", "DequantizeLinear", 10, DequantizeShape, DequantizeCompute},
      {"", "QuantizeLinear", 10, QuantizeShape, QuantizeCompute},
      {"com.microsoft", "DequantizeLinear", 1, DequantizeShape, DequantizeCompute},
      {"com.microsoft", "QuantizeLinear", 1, QuantizeShape, QuantizeCompute},
  };
  return ops;
}

}  // namespace kvlift::exec
