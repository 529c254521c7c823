// Products of integer matrices: MatMulInteger and QLinearMatMul, and MatMulIntegerToFloat and
// DynamicQuantizeMatMul of com.microsoft, which continue with floats.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <type_traits>

#include "base/status.h"
#include "exec/kernels/common/gemm_isa.h"
#include "exec/kernels/common/math_util.h"
#include "exec/kernels/common/tables.h"
#include "exec/memory/scratch.h"
#include "exec/memory/small_types.h"

namespace kvlift::exec {
namespace {

using namespace math;  // NOLINT
using onnx::TensorProto;

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

// Returns the index of the zero point or scale of a line: there is one for all, one per row (or
// column), or one per row of every matrix.
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

template <typename Number>
Number NumberAt(const View& view, int64_t i) {
  if constexpr (std::is_integral_v<Number>) {
    return SmallIntegerAt(view, i);
  } else {
    return static_cast<Number>(SmallFloatAt(view, i));
  }
}

// Returns true if an operand and its zero point are bytes of one type, so that differences fit 9
// bits.
bool AreBytes(const KernelContext& context, size_t operand, size_t zero) {
  const int32_t type = context.inputs[operand].type;
  return (type == TensorProto::INT8 || type == TensorProto::UINT8) &&
         (!HasInput(context, zero) || context.inputs[zero].type == type);
}

// Writes rows of a matrix of bytes, less their zero points, in pairs as in IntegerBlock.
void PairRows(const View& a, int64_t first, const IntegerPlan& p, const int32_t* zeros, int64_t ld,
              int32_t* pairs) {
  const int64_t count = (p.k + 1) / 2;
  const auto pair_up = [&](const auto* x) {
    for (int64_t i = 0; i < p.m; ++i) {
      const auto* row = x + (first + i) * p.k;
      for (int64_t t = 0; t < count; ++t) {
        const int32_t low = row[2 * t] - zeros[i];
        const int32_t high = 2 * t + 1 < p.k ? row[2 * t + 1] - zeros[i] : 0;
        pairs[i * ld + t] =
            static_cast<int32_t>(static_cast<uint32_t>(high) << 16) | (low & 0xFFFF);
      }
    }
  };
  a.type == TensorProto::INT8 ? pair_up(a.as<int8_t>()) : pair_up(a.as<uint8_t>());
}

// Does what ForEachProduct does, for bytes, with vectors and threads; any thread may call f.
// zero(input, lines, matrix, line) returns a zero point.
template <typename Zero, typename F>
void ForEachByteProduct(const KernelContext& context, const IntegerPlan& p, size_t second,
                        size_t zero_a, size_t zero_b, const Zero& zero, const F& f) {
  constexpr int64_t kColumns = 512, kRows = 32;  // of a unit of work
  const View& a = context.inputs[0];
  const View& b = context.inputs[second];
  ScratchScope scratch;
  // Rows a power of two apart would share a few sets of the processor's cache.
  constexpr int64_t kPadding = 16;
  const int64_t count = (p.k + 1) / 2, ld = count + kPadding,
                stripes = (p.n + kColumns - 1) / kColumns;
  int32_t* pairs = scratch.Get<int32_t>(p.m * ld);
  int32_t* zeros_a = scratch.Get<int32_t>(p.m);
  int32_t* zeros_b = scratch.Get<int32_t>(p.n);
  const bool small = p.m * p.n * p.k < (1 << 18);
  for (int64_t i = 0; i < NumElements(p.batch); ++i) {
    const int64_t in_a = MatrixAt(p.batch_a, p.batch, i), in_b = MatrixAt(p.batch_b, p.batch, i);
    for (int64_t row = 0; row < p.m; ++row) {
      zeros_a[row] = static_cast<int32_t>(zero(zero_a, p.m, in_a, row));
    }
    for (int64_t column = 0; column < p.n; ++column) {
      const auto z = static_cast<int32_t>(zero(zero_b, p.n, in_b, column));
      zeros_b[column] = static_cast<int32_t>(static_cast<uint32_t>(z) << 16) | (z & 0xFFFF);
    }
    PairRows(a, in_a * p.m, p, zeros_a, ld, pairs);
    ParallelUnits(small ? 1 : context.threads, stripes, [&](int64_t stripe) {
      ScratchScope own;
      IntegerBlock block;
      const int64_t first = stripe * kColumns;
      block.n = std::min(kColumns, p.n - first);
      block.ldc = block.n + kPadding;
      block.k = p.k;
      block.pairs = count;
      block.lda = ld;
      block.b = b.data + in_b * p.k * p.n + first;
      block.b_signed = b.type == TensorProto::INT8;
      block.ldb = p.n;
      block.zeros = zeros_b + first;
      block.c = own.Get<int32_t>(kRows * block.ldc);
      for (int64_t row = 0; row < p.m; row += kRows) {
        block.m = static_cast<int>(std::min(kRows, p.m - row));
        block.a = pairs + row * ld;
        std::fill_n(block.c, block.m * block.ldc, 0);
        Isa().integers(block);
        for (int64_t r = 0; r < block.m; ++r) {
          for (int64_t j = 0; j < block.n; ++j) {
            f((i * p.m + row + r) * p.n + first + j, in_a, row + r, in_b, first + j,
              int64_t{block.c[r * block.ldc + j]});
          }
        }
      }
    });
  }
}

// Calls f(output index, matrix of a, row, matrix of b, column, sum). Operands and zero points are
// small integers with int64 sums, or small floats with double sums.
template <typename Number = int64_t, typename F>
void ForEachProduct(const KernelContext& context, const IntegerPlan& p, size_t second,
                    size_t zero_a, size_t zero_b, const F& f) {
  const View& a = context.inputs[0];
  const View& b = context.inputs[second];
  const auto zero = [&](size_t input, int64_t lines, int64_t matrix, int64_t line) -> Number {
    if (!HasInput(context, input)) return 0;
    const View& view = context.inputs[input];
    return NumberAt<Number>(view, PerLine(view, lines, matrix, line));
  };
  if constexpr (std::is_integral_v<Number>) {
    if (p.k <= IntegerBlock::kMostRows && AreBytes(context, 0, zero_a) &&
        AreBytes(context, second, zero_b)) {
      return ForEachByteProduct(context, p, second, zero_a, zero_b, zero, f);
    }
  }
  for (int64_t i = 0; i < NumElements(p.batch); ++i) {
    const int64_t in_a = MatrixAt(p.batch_a, p.batch, i), in_b = MatrixAt(p.batch_b, p.batch, i);
    for (int64_t row = 0; row < p.m; ++row) {
      const Number za = zero(zero_a, p.m, in_a, row);
      for (int64_t column = 0; column < p.n; ++column) {
        const Number zb = zero(zero_b, p.n, in_b, column);
        Number sum = 0;
        for (int64_t k = 0; k < p.k; ++k) {
          sum += (NumberAt<Number>(a, (in_a * p.m + row) * p.k + k) - za) *
                 (NumberAt<Number>(b, (in_b * p.k + k) * p.n + column) - zb);
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

// Inputs: a, its scale and zero point, b, its scale and zero point, scale and zero point of the
// result.
absl::Status QLinearMatMulShape(KernelContext& context) {
  KV_RETURN_IF_ERROR(NeedInputs(context, 8));
  KV_ASSIGN_OR_RETURN(IntegerPlan p, PlanIntegers(context, 3));
  const bool floats = IsSmallFloat(context.inputs[0].type);
  for (const size_t i : {0, 2, 3, 5, 7}) {
    const int32_t type = context.inputs[i].type;
    if (!(floats ? IsSmallFloat(type) : IsSmallInteger(type))) {
      return Invalid(context, "quantized numbers of one kind are needed");
    }
  }
  bool fits = true;
  for (const size_t i : {6, 7}) fits = fits && FitsLines(context, i, p.m, NumElements(p.batch));
  for (const size_t i : {1, 2}) fits = fits && FitsLines(context, i, p.m, NumElements(p.batch_a));
  for (const size_t i : {4, 5}) fits = fits && FitsLines(context, i, p.n, NumElements(p.batch_b));
  if (!fits) return Invalid(context, "a scale or zero point does not fit");
  SetSpec(context, 0, context.inputs[7].type, std::move(p.out));
  return absl::OkStatus();
}

absl::Status QLinearMatMulCompute(KernelContext& context) {
  KV_ASSIGN_OR_RETURN(const IntegerPlan p, PlanIntegers(context, 3));
  const auto line = [&](size_t input, int64_t lines, int64_t matrix, int64_t i) {
    const View& view = context.inputs[input];
    return ElementAsDouble(view, PerLine(view, lines, matrix, i));
  };
  const View& out = context.outputs[0];
  // Returns a sum times its scales, before the zero point is added.
  const auto scaled = [&](int64_t at, int64_t in_a, int64_t row, int64_t in_b, int64_t column,
                          double sum) {
    const double factor = line(1, p.m, in_a, row) * line(4, p.n, in_b, column);
    return sum * (factor / line(6, p.m, at / (p.m * p.n), row));
  };
  if (IsSmallFloat(out.type)) {
    ForEachProduct<double>(
        context, p, 3, 2, 5,
        [&](int64_t at, int64_t in_a, int64_t row, int64_t in_b, int64_t column, double sum) {
          const double zero = line(7, p.m, at / (p.m * p.n), row);
          const double value = scaled(at, in_a, row, in_b, column, sum) + zero;
          SetSmallFloat(out, at, static_cast<float>(value), true);
        });
    return absl::OkStatus();
  }
  const IntegerRange range = RangeOf(out.type);
  ForEachProduct(
      context, p, 3, 2, 5,
      [&](int64_t at, int64_t in_a, int64_t row, int64_t in_b, int64_t column, int64_t sum) {
        const double value = scaled(at, in_a, row, in_b, column, static_cast<double>(sum));
        const double shifted = std::nearbyint(value) + line(7, p.m, at / (p.m * p.n), row);
        const double clamped =
            std::clamp(shifted, static_cast<double>(range.low), static_cast<double>(range.high));
        SetSmallInteger(out, at, std::isnan(clamped) ? 0 : static_cast<int64_t>(clamped));
      });
  return absl::OkStatus();
}

// Y = sum * a_scale * b_scale + bias. The fields are the indices of the inputs that belong to b.
struct FloatInputs {
  size_t scale_b, zero_b, bias;
};

template <typename T>
void ToFloat(KernelContext& context, const KernelContext& operands, const IntegerPlan& p,
             size_t zero_a, const FloatInputs& in, double scale_a) {
  T* y = context.outputs[0].as<T>();
  const View& scale_b = context.inputs[in.scale_b];
  ForEachProduct(operands, p, 1, zero_a, in.zero_b,
                 [&](int64_t at, int64_t, int64_t, int64_t in_b, int64_t column, int64_t sum) {
                   const double b = ElementAsDouble(scale_b, PerLine(scale_b, p.n, in_b, column));
                   auto value = static_cast<Compute<T>>(static_cast<double>(sum) * (scale_a * b));
                   if (HasInput(context, in.bias)) {
                     value += Widen(context.inputs[in.bias].as<T>()[column]);
                   }
                   y[at] = Narrow<T>(value);
                 });
}

absl::Status FloatShape(KernelContext& context, size_t zero_a, const FloatInputs& in) {
  KV_ASSIGN_OR_RETURN(IntegerPlan p, PlanIntegers(context, 1));
  const int32_t type = context.inputs[in.scale_b].type;
  bool fits = IsSmallInteger(context.inputs[1].type) &&
              FitsLines(context, in.scale_b, p.n, NumElements(p.batch_b)) &&
              FitsLines(context, in.zero_b, p.n, NumElements(p.batch_b));
  if (zero_a != 0) fits = fits && FitsLines(context, zero_a, p.m, NumElements(p.batch_a));
  if (HasInput(context, in.bias)) {
    fits = fits && context.inputs[in.bias].shape == Shape({p.n}) &&
           context.inputs[in.bias].type == type;
  }
  if (!fits) return Invalid(context, "a scale, zero point or bias does not fit");
  SetSpec(context, 0, type, std::move(p.out));
  return absl::OkStatus();
}

// QGemm: matrices 0 and 3, each with a scale and a zero point behind it, a bias of int32 in units
// of their product, and the scale and zero point of the result, without which it is float32.
// Source: ONNX Runtime, contrib operators.
constexpr size_t kGemmRight = 3, kGemmBias = 6, kGemmScale = 7, kGemmZero = 8;

struct QGemmPlan {
  int64_t m = 0, n = 0, k = 0;
  bool turned_a = false, turned_b = false;
};

absl::StatusOr<QGemmPlan> PlanQGemm(const KernelContext& context) {
  KV_RETURN_IF_ERROR(NeedInputs(context, kGemmRight + 2));
  const Shape &a = context.inputs[0].shape, &b = context.inputs[kGemmRight].shape;
  QGemmPlan p;
  p.turned_a = IntAttribute(context, "transA", 0) != 0;
  p.turned_b = IntAttribute(context, "transB", 0) != 0;
  if (a.size() != 2 || b.size() != 2) return Invalid(context, "matrices are needed");
  p.m = a[p.turned_a ? 1 : 0];
  p.k = a[p.turned_a ? 0 : 1];
  p.n = b[p.turned_b ? 0 : 1];
  bool fits = p.k == b[p.turned_b ? 1 : 0] && context.inputs[1].size() == 1 &&
              FitsLines(context, kGemmRight + 1, p.n, 1) &&
              FitsLines(context, kGemmRight + 2, p.n, 1);
  for (const size_t i : {size_t{0}, kGemmRight}) {
    fits = fits && IsSmallInteger(context.inputs[i].type);
  }
  Shape out;
  if (HasInput(context, kGemmBias)) {
    const View& bias = context.inputs[kGemmBias];
    fits = fits && bias.type == TensorProto::INT32 &&
           BroadcastShapes(bias.shape, {p.m, p.n}, &out) && out == Shape({p.m, p.n});
  }
  if (HasInput(context, kGemmScale)) {
    fits = fits && HasInput(context, kGemmZero) && context.inputs[kGemmScale].size() == 1 &&
           context.inputs[kGemmZero].size() == 1 && IsSmallInteger(context.inputs[kGemmZero].type);
  }
  if (!fits) return Invalid(context, "operands do not fit");
  return p;
}

absl::Status QGemmShape(KernelContext& context) {
  KV_ASSIGN_OR_RETURN(const QGemmPlan p, PlanQGemm(context));
  const bool codes = HasInput(context, kGemmScale);
  SetSpec(context, 0, codes ? context.inputs[kGemmZero].type : int32_t{TensorProto::FLOAT},
          {p.m, p.n});
  return absl::OkStatus();
}

absl::Status QGemmCompute(KernelContext& context) {
  KV_ASSIGN_OR_RETURN(const QGemmPlan p, PlanQGemm(context));
  const View &a = context.inputs[0], &b = context.inputs[kGemmRight], &out = context.outputs[0];
  const auto zero = [&](size_t input, int64_t line) -> int64_t {
    if (!HasInput(context, input)) return 0;
    return SmallIntegerAt(context.inputs[input], PerLine(context.inputs[input], p.n, 0, line));
  };
  const View& scale_b = context.inputs[kGemmRight + 1];
  const bool biased = HasInput(context, kGemmBias), codes = HasInput(context, kGemmScale);
  const auto strides =
      BroadcastStrides(biased ? context.inputs[kGemmBias].shape : Shape(), {p.m, p.n});
  const double alpha = static_cast<double>(FloatAttribute(context, "alpha", 1));
  for (int64_t row = 0; row < p.m; ++row) {
    for (int64_t column = 0; column < p.n; ++column) {
      int64_t sum = 0;
      for (int64_t k = 0; k < p.k; ++k) {
        const int64_t x = SmallIntegerAt(a, p.turned_a ? k * p.m + row : row * p.k + k);
        const int64_t y = SmallIntegerAt(b, p.turned_b ? column * p.k + k : k * p.n + column);
        sum += (x - zero(2, 0)) * (y - zero(kGemmRight + 2, column));
      }
      if (biased) {
        sum += context.inputs[kGemmBias].as<int32_t>()[row * strides[0] + column * strides[1]];
      }
      const double value = static_cast<double>(sum) * alpha *
                           ElementAsDouble(context.inputs[1], 0) *
                           ElementAsDouble(scale_b, PerLine(scale_b, p.n, 0, column));
      const int64_t at = row * p.n + column;
      if (!codes) {
        out.as<float>()[at] = static_cast<float>(value);
        continue;
      }
      const IntegerRange range = RangeOf(out.type);
      const double code = std::nearbyint(value / ElementAsDouble(context.inputs[kGemmScale], 0)) +
                          ElementAsDouble(context.inputs[kGemmZero], 0);
      const double clamped =
          std::clamp(code, static_cast<double>(range.low), static_cast<double>(range.high));
      SetSmallInteger(out, at, std::isnan(clamped) ? 0 : static_cast<int64_t>(clamped));
    }
  }
  return absl::OkStatus();
}

constexpr FloatInputs kToFloat = {3, 5, 6};
constexpr FloatInputs kDynamic = {2, 3, 4};

absl::Status IntegerToFloatShape(KernelContext& context) {
  KV_RETURN_IF_ERROR(NeedInputs(context, 4));
  if (!IsSmallInteger(context.inputs[0].type)) return Invalid(context, "integers are needed");
  if (context.inputs[2].size() != 1) return Unsupported(context, "a_scale by row is not supported");
  return FloatShape(context, 4, kToFloat);
}

absl::Status IntegerToFloatCompute(KernelContext& context) {
  KV_ASSIGN_OR_RETURN(const IntegerPlan p, PlanIntegers(context, 1));
  return VisitFloat(context.outputs[0].type, [&](auto tag) {
    ToFloat<typename decltype(tag)::Type>(context, context, p, 4, kToFloat,
                                          ElementAsDouble(context.inputs[2], 0));
    return absl::OkStatus();
  });
}

absl::Status DynamicShape(KernelContext& context) {
  KV_RETURN_IF_ERROR(NeedInputs(context, 3));
  if (context.inputs[0].type != TensorProto::FLOAT) return Invalid(context, "A must be float");
  return FloatShape(context, 0, kDynamic);
}

// A is quantised as by DynamicQuantizeLinear.
absl::Status DynamicCompute(KernelContext& context) {
  KV_ASSIGN_OR_RETURN(const IntegerPlan p, PlanIntegers(context, 1));
  const absl::Span<const float> a = context.inputs[0].span<float>();
  float low = 0, high = 0;
  for (const float x : a) {
    low = std::min(low, x);
    high = std::max(high, x);
  }
  const float scale = high == low ? 1.0f : (high - low) / 255.0f;
  const float zero = std::nearbyint(std::clamp(0.0f - low / scale, 0.0f, 255.0f));
  ScratchScope scratch;
  uint8_t* codes = scratch.Get<uint8_t>(static_cast<int64_t>(a.size()) + 1);
  for (size_t i = 0; i < a.size(); ++i) {
    codes[i] = static_cast<uint8_t>(std::clamp(std::nearbyint(a[i] / scale) + zero, 0.0f, 255.0f));
  }
  codes[a.size()] = static_cast<uint8_t>(zero);
  absl::InlinedVector<View, 5> inputs(context.inputs.begin(), context.inputs.end());
  inputs[0].type = TensorProto::UINT8;
  inputs[0].data = reinterpret_cast<std::byte*>(codes);
  inputs.resize(5);
  inputs.push_back({TensorProto::UINT8, {}, reinterpret_cast<std::byte*>(codes + a.size())});
  KernelContext operands{context.node, context.opset, inputs, {}, nullptr};
  operands.threads = context.threads;
  ToFloat<float>(context, operands, p, 5, kDynamic, scale);
  return absl::OkStatus();
}

}  // namespace

absl::Span<const OpDef> IntegerMatMulOps() {
  static const OpDef ops[] = {
      {"", "MatMulInteger", 10, MatMulIntegerShape, MatMulIntegerCompute},
      {"", "QLinearMatMul", 10, QLinearMatMulShape, QLinearMatMulCompute},
      {"com.microsoft", "DynamicQuantizeMatMul", 1, DynamicShape, DynamicCompute},
      {"com.microsoft", "MatMulIntegerToFloat", 1, IntegerToFloatShape, IntegerToFloatCompute},
      {"com.microsoft", "QGemm", 1, QGemmShape, QGemmCompute},
  };
  return ops;
}

}  // namespace kvlift::exec
