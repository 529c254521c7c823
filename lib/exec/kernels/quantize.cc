// QuantizeLinear, DequantizeLinear and integer products. Scales and zero points are one for the
// tensor, one per index of an axis, or one per block of an axis.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/status.h"
#include "exec/kernels/math_util.h"
#include "exec/kernels/move_util.h"
#include "exec/kernels/tables.h"
#include "exec/small_types.h"
#include "ir/types.h"

namespace kvlift::exec {
namespace {

using namespace math;  // NOLINT
using onnx::TensorProto;

// Index of the scale of every element.
struct Scales {
  int64_t n = 1, inner = 1;  // size of the axis, elements behind it; of one scale: 1 and 1
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

// x / scale in the type that the operator divides in.
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

// Products of integer matrices. ------------------------------------------------------------------

struct IntegerPlan {
  int64_t m = 1, n = 1, k = 1;
  Shape batch, batch_a, batch_b, out;
};

absl::StatusOr<IntegerPlan> PlanIntegers(const KernelContext& context, size_t second) {
  const Shape& a = context.inputs[0].shape;
  const Shape& b = context.inputs[second].shape;
  IntegerPlan p;
  bool fits = !a.empty() && !b.empty();
  if (fits) {
    p.k = a.back();
    fits = p.k == (b.size() == 1 ? b[0] : b[b.size() - 2]);
    if (a.size() > 1) {
      p.m = a[a.size() - 2];
      p.batch_a.assign(a.begin(), a.end() - 2);
    }
    if (b.size() > 1) {
      p.n = b.back();
      p.batch_b.assign(b.begin(), b.end() - 2);
    }
  }
  if (!fits || !BroadcastShapes(p.batch_a, p.batch_b, &p.batch)) {
    return Invalid(context, fmt::format("{} and {} do not fit", ShapeString(a), ShapeString(b)));
  }
  p.out = p.batch;
  if (a.size() > 1) p.out.push_back(p.m);
  if (b.size() > 1) p.out.push_back(p.n);
  return p;
}

// A zero point or scale of an operand: one, one per row (column), or one per row of every matrix.
int64_t PerLine(const View& view, int64_t lines, int64_t matrix, int64_t line) {
  if (view.size() == 1) return 0;
  return view.size() == lines ? line : matrix * lines + line;
}
bool FitsLines(const KernelContext& context, size_t input, int64_t lines, int64_t matrices) {
  if (!HasInput(context, input)) return true;
  const int64_t size = context.inputs[input].size();
  return size == 1 || size == lines || size == lines * matrices;
}

int64_t MatrixAt(const Shape& shape, const Shape& batch, int64_t flat) {
  const auto strides = BroadcastStrides(shape, batch);
  int64_t at = 0;
  for (size_t d = batch.size(); d-- > 0;) {
    at += flat % batch[d] * strides[d];
    flat /= batch[d];
  }
  return at;
}

// Calls f(output index, matrix of a, row, matrix of b, column, sum).
template <typename F>
void ForEachProduct(const KernelContext& context, const IntegerPlan& p, size_t second,
                    size_t zero_a, size_t zero_b, const F& f) {
  const View& a = context.inputs[0];
  const View& b = context.inputs[second];
  const auto zero = [&](size_t input, int64_t lines, int64_t matrix, int64_t line) -> int64_t {
    if (!HasInput(context, input)) return 0;
    const View& view = context.inputs[input];
    return SmallIntegerAt(view, PerLine(view, lines, matrix, line));
  };
  for (int64_t i = 0; i < NumElements(p.batch); ++i) {
    const int64_t in_a = MatrixAt(p.batch_a, p.batch, i), in_b = MatrixAt(p.batch_b, p.batch, i);
    for (int64_t row = 0; row < p.m; ++row) {
      const int64_t za = zero(zero_a, p.m, in_a, row);
      for (int64_t column = 0; column < p.n; ++column) {
        const int64_t zb = zero(zero_b, p.n, in_b, column);
        int64_t sum = 0;
        for (int64_t k = 0; k < p.k; ++k) {
          sum += (SmallIntegerAt(a, (in_a * p.m + row) * p.k + k) - za) *
                 (SmallIntegerAt(b, (in_b * p.k + k) * p.n + column) - zb);
        }
        f((i * p.m + row) * p.n + column, in_a, row, in_b, column, sum);
      }
    }
  }
}

absl::Status MatMulIntegerShape(KernelContext& context) {
  KV_RETURN_IF_ERROR(NeedInputs(context, 2));
  KV_ASSIGN_OR_RETURN(IntegerPlan p, PlanIntegers(context, 1));
  for (size_t i = 0; i < 2; ++i) {
    if (!IsSmallInteger(context.inputs[i].type)) return Invalid(context, "integers are needed");
  }
  if (!FitsLines(context, 2, p.m, NumElements(p.batch_a)) ||
      !FitsLines(context, 3, p.n, NumElements(p.batch_b))) {
    return Invalid(context, "a zero point does not fit");
  }
  SetSpec(context, 0, TensorProto::INT32, std::move(p.out));
  return absl::OkStatus();
}

absl::Status MatMulIntegerCompute(KernelContext& context) {
  KV_ASSIGN_OR_RETURN(const IntegerPlan p, PlanIntegers(context, 1));
  int32_t* y = context.outputs[0].as<int32_t>();
  ForEachProduct(context, p, 1, 2, 3,
                 [&](int64_t at, int64_t, int64_t, int64_t, int64_t, int64_t sum) {
                   y[at] = static_cast<int32_t>(sum);
                 });
  return absl::OkStatus();
}

// a, its scale and zero point, b and its, those of the result.
absl::Status QLinearMatMulShape(KernelContext& context) {
  KV_RETURN_IF_ERROR(NeedInputs(context, 8));
  KV_ASSIGN_OR_RETURN(IntegerPlan p, PlanIntegers(context, 3));
  for (const size_t i : {0, 2, 3, 5, 7}) {
    if (!IsSmallInteger(context.inputs[i].type)) return Invalid(context, "integers are needed");
  }
  bool fits = context.inputs[6].size() == 1 && context.inputs[7].size() == 1;
  for (const size_t i : {1, 2}) fits = fits && FitsLines(context, i, p.m, NumElements(p.batch_a));
  for (const size_t i : {4, 5}) fits = fits && FitsLines(context, i, p.n, NumElements(p.batch_b));
  if (!fits) return Invalid(context, "a scale or zero point does not fit");
  SetSpec(context, 0, context.inputs[7].type, std::move(p.out));
  return absl::OkStatus();
}

absl::Status QLinearMatMulCompute(KernelContext& context) {
  KV_ASSIGN_OR_RETURN(const IntegerPlan p, PlanIntegers(context, 3));
  const View& out = context.outputs[0];
  const IntegerRange range = RangeOf(out.type);
  const double scale = ElementAsDouble(context.inputs[6], 0);
  const auto zero = static_cast<double>(SmallIntegerAt(context.inputs[7], 0));
  ForEachProduct(
      context, p, 3, 2, 5,
      [&](int64_t at, int64_t in_a, int64_t row, int64_t in_b, int64_t column, int64_t sum) {
        const View& a = context.inputs[1];
        const View& b = context.inputs[4];
        const double factor = ElementAsDouble(a, PerLine(a, p.m, in_a, row)) *
                              ElementAsDouble(b, PerLine(b, p.n, in_b, column)) / scale;
        const double value = std::nearbyint(static_cast<double>(sum) * factor) + zero;
        const double clamped =
            std::clamp(value, static_cast<double>(range.low), static_cast<double>(range.high));
        SetSmallInteger(out, at, static_cast<int64_t>(clamped));
      });
  return absl::OkStatus();
}

}  // namespace

absl::Span<const OpDef> QuantizeOps() {
  static const OpDef ops[] = {
      {"", "DequantizeLinear", 10, DequantizeShape, DequantizeCompute},
      {"", "MatMulInteger", 10, MatMulIntegerShape, MatMulIntegerCompute},
      {"", "QLinearMatMul", 10, QLinearMatMulShape, QLinearMatMulCompute},
      {"", "QuantizeLinear", 10, QuantizeShape, QuantizeCompute},
      {"com.microsoft", "DequantizeLinear", 1, DequantizeShape, DequantizeCompute},
      {"com.microsoft", "QuantizeLinear", 1, QuantizeShape, QuantizeCompute},
  };
  return ops;
}

}  // namespace kvlift::exec
