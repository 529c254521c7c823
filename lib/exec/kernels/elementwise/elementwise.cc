// Unary arithmetic, and the helpers of elementwise.h.
#include "exec/kernels/elementwise/elementwise.h"

#include <fmt/format.h>

#include <cmath>

#include "base/status.h"
#include "exec/kernels/common/tables.h"
#include "exec/kernels/elementwise/elementwise_binary.h"

namespace kvlift::exec {
namespace math {
namespace {

// Iterates over the rows of `out` (its last dimension) with the element offsets of two operands
// that broadcast to it.
class BroadcastRows {
 public:
  BroadcastRows(const Shape& a, const Shape& b, const Shape& out);
  int64_t rows() const { return rows_; }
  int64_t length() const { return length_; }
  // Steps of the operands along a row: 0 or 1.
  int64_t step_a() const { return step_a_; }
  int64_t step_b() const { return step_b_; }
  // Returns the element offsets of a and b at the start of a row.
  std::pair<int64_t, int64_t> Offsets(int64_t row) const;

 private:
  int64_t rows_ = 1, length_ = 1, step_a_ = 0, step_b_ = 0;
  Shape dims_;  // outer dimensions, merged where both operands allow it
  absl::InlinedVector<int64_t, 6> strides_a_, strides_b_;
};

BroadcastRows::BroadcastRows(const Shape& a, const Shape& b, const Shape& out) {
  const auto strides_a = BroadcastStrides(a, out), strides_b = BroadcastStrides(b, out);
  // Merges dimensions, innermost first.
  absl::InlinedVector<int64_t, 6> dims, sa, sb;
  for (size_t i = out.size(); i-- > 0;) {
    if (out[i] == 1) continue;
    if (!dims.empty() && strides_a[i] == sa.back() * dims.back() &&
        strides_b[i] == sb.back() * dims.back()) {
      dims.back() *= out[i];
      continue;
    }
    dims.push_back(out[i]);
    sa.push_back(strides_a[i]);
    sb.push_back(strides_b[i]);
  }
  if (dims.empty()) {
    step_a_ = step_b_ = 1;
    return;
  }
  length_ = dims[0];
  step_a_ = sa[0];
  step_b_ = sb[0];
  dims_.assign(dims.begin() + 1, dims.end());
  strides_a_.assign(sa.begin() + 1, sa.end());
  strides_b_.assign(sb.begin() + 1, sb.end());
  for (int64_t d : dims_) rows_ *= d;
}

std::pair<int64_t, int64_t> BroadcastRows::Offsets(int64_t row) const {
  int64_t a = 0, b = 0;
  for (size_t i = 0; i < dims_.size(); ++i) {
    const int64_t at = row % dims_[i];
    row /= dims_[i];
    a += at * strides_a_[i];
    b += at * strides_b_[i];
  }
  return {a, b};
}

}  // namespace

void MapPieces(KernelContext& context, int64_t bytes,
               absl::FunctionRef<void(const std::byte* x, int64_t n, std::byte* y)> f) {
  const std::byte* x = context.inputs[0].data;
  std::byte* y = context.outputs[0].data;
  ParallelFor(
      context.threads, context.inputs[0].size(), 64, kMapPerThread,
      [&](int64_t begin, int64_t end) { f(x + begin * bytes, end - begin, y + begin * bytes); });
}

void MapRows(KernelContext& context, const ElementBytes& bytes,
             absl::FunctionRef<void(const std::byte* a, int64_t step_a, const std::byte* b,
                                    int64_t step_b, std::byte* y, int64_t n)>
                 f) {
  const View& va = context.inputs[0];
  const View& vb = context.inputs[1];
  std::byte* y = context.outputs[0].data;
  const BroadcastRows rows(va.shape, vb.shape, context.outputs[0].shape);
  const int64_t n = rows.length(), step_a = rows.step_a(), step_b = rows.step_b();
  if (n == 0) return;
  // Threads divide the only row, or the rows.
  const bool alone = rows.rows() == 1;
  ParallelFor(context.threads, alone ? n : rows.rows(), alone ? 64 : 1,
              alone ? kMapPerThread : std::max<int64_t>(1, kMapPerThread / n),
              [&](int64_t begin, int64_t end) {
                const int64_t first = alone ? begin : 0, count = alone ? end - begin : n;
                const int64_t last_row = alone ? 1 : end;
                for (int64_t row = alone ? 0 : begin; row < last_row; ++row) {
                  const auto [offset_a, offset_b] = rows.Offsets(row);
                  f(va.data + (offset_a + first * step_a) * bytes.a, step_a,
                    vb.data + (offset_b + first * step_b) * bytes.b, step_b,
                    y + (row * n + first) * bytes.y, count);
                }
              });
}

absl::Status BroadcastMixed(KernelContext& context) {
  KV_RETURN_IF_ERROR(NeedInputs(context, std::max<size_t>(1, context.inputs.size())));
  Shape out = context.inputs[0].shape;
  for (const View& input : context.inputs.subspan(1)) {
    Shape next;
    if (!BroadcastShapes(out, input.shape, &next)) {
      return Invalid(context, fmt::format("{} and {} do not broadcast", ShapeString(out),
                                          ShapeString(input.shape)));
    }
    out = next;
  }
  SetSpec(context, 0, context.inputs[0].type, std::move(out));
  return absl::OkStatus();
}

absl::Status BroadcastInputs(KernelContext& context) {
  for (const View& input : context.inputs) {
    if (input.type != context.inputs[0].type) return Invalid(context, "inputs differ in type");
  }
  return BroadcastMixed(context);
}

}  // namespace math

namespace {

using namespace math;  // NOLINT

// Makes a kernel from a functor on the compute type: UnaryFloat for float types, the other for all
// numeric types.
template <typename F>
absl::Status UnaryFloat(KernelContext& context) {
  return VisitFloat(context.inputs[0].type, [&](auto tag) {
    MapUnary<typename decltype(tag)::Type>(context, F());
    return absl::OkStatus();
  });
}
template <typename F>
absl::Status UnaryNumeric(KernelContext& context) {
  return VisitNumeric(context.inputs[0].type, [&](auto tag) {
    MapUnary<typename decltype(tag)::Type>(context, F());
    return absl::OkStatus();
  });
}

struct AbsFn {
  template <typename T>
  T operator()(T x) const {
    if constexpr (std::is_floating_point_v<T>) {
      return std::fabs(x);
    } else if constexpr (std::is_signed_v<T>) {
      return x < 0 ? static_cast<T>(0 - static_cast<uint64_t>(x)) : x;
    } else {
      return x;
    }
  }
};
struct NegFn {
  template <typename T>
  T operator()(T x) const {
    if constexpr (std::is_floating_point_v<T>) {
      return -x;
    } else {
      return static_cast<T>(0 - static_cast<uint64_t>(x));
    }
  }
};
struct SignFn {
  template <typename T>
  T operator()(T x) const {
    if constexpr (std::is_floating_point_v<T>) {
      if (std::isnan(x)) return x;
    }
    return static_cast<T>((T{0} < x) - (x < T{0}));
  }
};
struct ReciprocalFn {
  template <typename T>
  T operator()(T x) const {
    return T{1} / x;
  }
};
struct RoundFn {
  template <typename T>
  T operator()(T x) const {
    return std::nearbyint(x);
  }
};

#define KV_UNARY(NAME, FN)    \
  struct NAME {               \
    template <typename T>     \
    T operator()(T x) const { \
      return FN(x);           \
    }                         \
  };
KV_UNARY(SqrtFn, std::sqrt)
KV_UNARY(LogFn, std::log)
KV_UNARY(ErfFn, std::erf)
KV_UNARY(TanhFn, std::tanh)
KV_UNARY(FloorFn, std::floor)
KV_UNARY(CeilFn, std::ceil)
KV_UNARY(SinFn, std::sin)
KV_UNARY(CosFn, std::cos)
KV_UNARY(TanFn, std::tan)
KV_UNARY(SinhFn, std::sinh)
KV_UNARY(CoshFn, std::cosh)
KV_UNARY(AsinFn, std::asin)
KV_UNARY(AcosFn, std::acos)
KV_UNARY(AtanFn, std::atan)
KV_UNARY(AsinhFn, std::asinh)
KV_UNARY(AcoshFn, std::acosh)
KV_UNARY(AtanhFn, std::atanh)
#undef KV_UNARY

absl::Status ExpKernel(KernelContext& context) {
  return VisitFloat(context.inputs[0].type, [&](auto tag) {
    using T = typename decltype(tag)::Type;
    MapArrays<T>(context, Vectors<Compute<T>>().exp);
    return absl::OkStatus();
  });
}

absl::Status SigmoidKernel(KernelContext& context) {
  return VisitFloat(context.inputs[0].type, [&](auto tag) {
    using T = typename decltype(tag)::Type;
    MapArrays<T>(context, Vectors<Compute<T>>().sigmoid);
    return absl::OkStatus();
  });
}

constexpr OpDef Unary(std::string_view name, int version, KernelFn compute) {
  return {"", name, version, SameAsInput, compute, ViewKind::kNone, 0};
}
constexpr OpDef BinaryOp(std::string_view name, int version, KernelFn compute) {
  return {"", name, version, BroadcastInputs, compute, ViewKind::kNone, 0};
}

}  // namespace

absl::Span<const OpDef> ElementwiseOps() {
  static const OpDef ops[] = {
      Unary("Abs", 6, UnaryNumeric<AbsFn>),
      Unary("Acos", 7, UnaryFloat<AcosFn>),
      Unary("Acosh", 9, UnaryFloat<AcoshFn>),
      BinaryOp("Add", 7, AddKernel),
      Unary("Asin", 7, UnaryFloat<AsinFn>),
      Unary("Asinh", 9, UnaryFloat<AsinhFn>),
      Unary("Atan", 7, UnaryFloat<AtanFn>),
      Unary("Atanh", 9, UnaryFloat<AtanhFn>),
      Unary("Ceil", 6, UnaryFloat<CeilFn>),
      Unary("Cos", 7, UnaryFloat<CosFn>),
      Unary("Cosh", 9, UnaryFloat<CoshFn>),
      BinaryOp("Div", 7, DivKernel),
      Unary("Erf", 9, UnaryFloat<ErfFn>),
      Unary("Exp", 6, ExpKernel),
      Unary("Floor", 6, UnaryFloat<FloorFn>),
      Unary("Log", 6, UnaryFloat<LogFn>),
      {"", "Max", 6, BroadcastInputs, MaxKernel},
      {"", "Mean", 6, BroadcastInputs, MeanKernel},
      {"", "Min", 6, BroadcastInputs, MinKernel},
      BinaryOp("Mod", 10, ModKernel),
      BinaryOp("Mul", 7, MulKernel),
      Unary("Neg", 6, UnaryNumeric<NegFn>),
      {"", "PRelu", 7, BroadcastInputs, PReluKernel, ViewKind::kNone, 0},
      {"", "Pow", 7, BroadcastMixed, PowKernel, ViewKind::kNone, 0},
      Unary("Reciprocal", 6, UnaryFloat<ReciprocalFn>),
      Unary("Round", 11, UnaryFloat<RoundFn>),
      Unary("Sigmoid", 6, SigmoidKernel),
      Unary("Sign", 9, UnaryNumeric<SignFn>),
      Unary("Sin", 7, UnaryFloat<SinFn>),
      Unary("Sinh", 9, UnaryFloat<SinhFn>),
      Unary("Sqrt", 6, UnaryFloat<SqrtFn>),
      BinaryOp("Sub", 7, SubKernel),
      {"", "Sum", 6, BroadcastInputs, SumKernel},
      Unary("Tan", 7, UnaryFloat<TanFn>),
      Unary("Tanh", 6, UnaryFloat<TanhFn>),
  };
  return ops;
}

}  // namespace kvlift::exec
