// Softmax, LogSoftmax and Hardmax: along one axis since opset 13, over all dimensions from `axis`
// on before.
#include <fmt/format.h>

#include <algorithm>

#include "base/status.h"
#include "exec/kernels/common/math_util.h"
#include "exec/kernels/common/tables.h"

namespace kvlift::exec {
namespace {

using namespace math;  // NOLINT

enum class Kind { kSoftmax, kLog, kHard };

// Computes one row x[n] in place. Sums have 16 lanes in a fixed order (gemm_isa.h).
template <typename C>
void SoftmaxRow(C* x, int64_t n, Kind kind, C* scratch) {
  const VectorOps<C>& ops = Vectors<C>();
  const C shift = ops.max(x, n);
  if (kind == Kind::kHard) {  // 1 at the first maximum, 0 elsewhere
    C* best = std::find(x, x + n, shift);
    std::fill(x, best, C{0});
    if (best != x + n) *best++ = C{1};
    std::fill(best, x + n, C{0});
    return;
  }
  if (kind == Kind::kSoftmax) {
    const C sum = ops.exp_sum(x, n, shift, x);
    ops.divide(x, n, sum, x);
    return;
  }
  const C log_sum = std::log(ops.exp_sum(x, n, shift, scratch));
  for (int64_t i = 0; i < n; ++i) x[i] = x[i] - shift - log_sum;
}

template <typename T>
void SoftmaxTyped(KernelContext& context, int64_t outer, int64_t n, int64_t inner, Kind kind) {
  using C = Compute<T>;
  const T* in = context.inputs[0].as<T>();
  T* out = context.outputs[0].as<T>();
  ParallelFor(context.threads, outer * inner, 1, std::max<int64_t>(1, 16384 / (n + 1)),
              [&](int64_t begin, int64_t end) {
                ScratchScope scope;
                C* row = scope.Get<C>(n);
                C* scratch = scope.Get<C>(kind == Kind::kLog ? n : 1);
                for (int64_t r = begin; r < end; ++r) {
                  const int64_t start = r / inner * n * inner + r % inner;
                  if (inner == 1) {
                    WidenArray(in + start, n, row);
                    SoftmaxRow(row, n, kind, scratch);
                    NarrowArray(row, n, out + start);
                    continue;
                  }
                  for (int64_t i = 0; i < n; ++i) row[i] = Widen(in[start + i * inner]);
                  SoftmaxRow(row, n, kind, scratch);
                  for (int64_t i = 0; i < n; ++i) out[start + i * inner] = Narrow<T>(row[i]);
                }
              });
}

absl::Status ComputeSoftmax(KernelContext& context, Kind kind, bool coerced) {
  KV_RETURN_IF_ERROR(NeedInputs(context, 1));
  const Shape& shape = context.inputs[0].shape;
  const auto rank = static_cast<int64_t>(shape.size());
  int64_t axis = IntAttribute(context, "axis", coerced ? 1 : -1);
  int64_t outer = 1, n = 1, inner = 1;
  if (!(coerced && axis == rank) && rank > 0) {
    axis = NormalAxis(axis, rank);
    if (axis < 0) return Invalid(context, fmt::format("axis out of range of {}", rank));
  } else if (rank == 0) {
    axis = 0;
  }
  for (int64_t i = 0; i < rank; ++i) {
    int64_t& part = i < axis ? outer : i == axis || coerced ? n : inner;
    part *= shape[i];
  }
  if (outer * n * inner == 0) return absl::OkStatus();
  return VisitFloat(context.inputs[0].type, [&](auto tag) {
    SoftmaxTyped<typename decltype(tag)::Type>(context, outer, n, inner, kind);
    return absl::OkStatus();
  });
}

// Before opset 13 all dimensions from `axis` on form one row.
template <Kind kKind, bool kCoerced>
absl::Status Softmax(KernelContext& context) {
  return ComputeSoftmax(context, kKind, kCoerced);
}

template <Kind kKind, bool kCoerced>
constexpr OpDef Normalization(std::string_view name) {
  return {"", name, kCoerced ? 1 : 13, SameAsInput, Softmax<kKind, kCoerced>, ViewKind::kNone, 0};
}

}  // namespace

absl::Span<const OpDef> SoftmaxOps() {
  static const OpDef ops[] = {
      Normalization<Kind::kHard, true>("Hardmax"),
      Normalization<Kind::kHard, false>("Hardmax"),
      Normalization<Kind::kLog, true>("LogSoftmax"),
      Normalization<Kind::kLog, false>("LogSoftmax"),
      Normalization<Kind::kSoftmax, true>("Softmax"),
      Normalization<Kind::kSoftmax, false>("Softmax"),
  };
  return ops;
}

}  // namespace kvlift::exec
