// RotaryEmbedding-23, and RotaryEmbedding of com.microsoft.
#include <fmt/format.h>

#include "base/status.h"
#include "exec/kernels/common/math_util.h"
#include "exec/kernels/common/tables.h"

namespace kvlift::exec {
namespace {

using namespace math;  // NOLINT

// X is [B, N, S, D] or [B, S, N * D]. The caches are [positions, R / 2] or, without position ids,
// [B, S, R / 2]; R is the number of elements of a head that are rotated.
struct RotaryPlan {
  int64_t B = 1, N = 1, S = 1, D = 0, R = 0;
  int64_t batch = 0, head = 0, token = 0;  // strides of X
  const View* positions = nullptr;
  const View* cosine = nullptr;
  const View* sine = nullptr;
  bool interleaved = false;
  bool offset_positions = false;  // `positions` holds the first position only
};

absl::StatusOr<RotaryPlan> PlanRotary(const KernelContext& context, bool microsoft) {
  KV_RETURN_IF_ERROR(NeedInputs(context, microsoft ? 4 : 3));
  RotaryPlan p;
  const View& x = context.inputs[0];
  p.cosine = &context.inputs[microsoft ? 2 : 1];
  p.sine = &context.inputs[microsoft ? 3 : 2];
  const size_t at = microsoft ? 1 : 3;
  if (HasInput(context, at)) p.positions = &context.inputs[at];
  p.interleaved = IntAttribute(context, "interleaved", 0) != 0;
  if (p.cosine->type != x.type || p.sine->type != x.type) {
    return Invalid(context, "the caches differ from X in type");
  }
  if (p.cosine->shape != p.sine->shape) return Invalid(context, "the caches differ in shape");
  const int64_t rotated = IntAttribute(context, "rotary_embedding_dim", 0);
  p.N = IntAttribute(context, "num_heads", 0);
  if (x.shape.size() == 4) {
    p.B = x.shape[0];
    p.N = x.shape[1];
    p.S = x.shape[2];
    p.D = x.shape[3];
    p.batch = p.N * p.S * p.D;
    p.head = p.S * p.D;
    p.token = p.D;
  } else if (x.shape.size() == 3) {
    p.B = x.shape[0];
    p.S = x.shape[1];
    const int64_t hidden = x.shape[2];
    if (p.N == 0 && microsoft && rotated == 0 && !p.cosine->shape.empty() &&
        p.cosine->shape.back() > 0) {
      p.N = hidden / (2 * p.cosine->shape.back());
    }
    if (p.N <= 0 || hidden % p.N != 0) return Invalid(context, "num_heads does not fit X");
    p.D = hidden / p.N;
    p.batch = p.S * hidden;
    p.head = p.D;
    p.token = hidden;
  } else {
    return Invalid(context, "X must have rank 3 or 4");
  }
  p.R = rotated > 0 ? rotated : p.D;
  if (p.R > p.D || p.R % 2 != 0) return Invalid(context, "the rotated size does not fit X");
  const Shape& cache = p.cosine->shape;
  const bool fits = p.positions != nullptr
                        ? cache.size() == 2 && cache[1] == p.R / 2
                        : cache.size() == 3 && (cache[0] == p.B || cache[0] == 1) &&
                              cache[1] == p.S && cache[2] == p.R / 2;
  if (!fits) {
    return Invalid(context, fmt::format("caches {} do not fit X {}", ShapeString(cache),
                                        ShapeString(x.shape)));
  }
  if (p.positions != nullptr) {
    if (p.positions->type != onnx::TensorProto::INT64) {
      return Invalid(context, "position_ids must be int64");
    }
    p.offset_positions = microsoft && p.positions->size() == 1 && p.B * p.S != 1;
    if (!p.offset_positions && p.positions->size() != p.B * p.S) {
      return Invalid(context, fmt::format("position_ids {} do not fit X {}",
                                          ShapeString(p.positions->shape), ShapeString(x.shape)));
    }
  }
  return p;
}

template <bool kMicrosoft>
absl::Status RotaryShape(KernelContext& context) {
  KV_ASSIGN_OR_RETURN(const RotaryPlan plan, PlanRotary(context, kMicrosoft));
  (void)plan;
  return SameAsInput(context);
}

int64_t Position(const RotaryPlan& p, int64_t b, int64_t s) {
  const int64_t* ids = p.positions->as<int64_t>();
  return p.offset_positions ? ids[0] + s : ids[b * p.S + s];
}

template <typename T>
void Rotate(KernelContext& context, const RotaryPlan& p) {
  const T* x = context.inputs[0].as<T>();
  T* y = context.outputs[0].as<T>();
  const T* cosine = p.cosine->as<T>();
  const T* sine = p.sine->as<T>();
  const int64_t half = p.R / 2;
  ParallelFor(context.threads, p.B * p.S, 1, std::max<int64_t>(1, 16384 / (p.N * p.D + 1)),
              [&](int64_t begin, int64_t end) {
                for (int64_t unit = begin; unit < end; ++unit) {
                  const int64_t b = unit / p.S, s = unit % p.S;
                  int64_t line = (p.cosine->shape[0] == 1 ? 0 : b * p.S) + s;
                  if (p.positions != nullptr) line = Position(p, b, s);
                  const T* c = cosine + line * half;
                  const T* n = sine + line * half;
                  for (int64_t h = 0; h < p.N; ++h) {
                    const int64_t at = b * p.batch + h * p.head + s * p.token;
                    for (int64_t i = 0; i < half; ++i) {
                      const int64_t first = at + (p.interleaved ? 2 * i : i);
                      const int64_t second = p.interleaved ? first + 1 : first + half;
                      const auto x1 = Widen(x[first]), x2 = Widen(x[second]);
                      y[first] = Narrow<T>(Widen(c[i]) * x1 - Widen(n[i]) * x2);
                      y[second] = Narrow<T>(Widen(n[i]) * x1 + Widen(c[i]) * x2);
                    }
                    if (x != y) std::copy(x + at + p.R, x + at + p.D, y + at + p.R);
                  }
                }
              });
}

template <bool kMicrosoft>
absl::Status RotaryCompute(KernelContext& context) {
  KV_ASSIGN_OR_RETURN(const RotaryPlan p, PlanRotary(context, kMicrosoft));
  if (p.positions != nullptr) {
    for (int64_t b = 0; b < p.B; ++b) {
      for (int64_t s = 0; s < p.S; ++s) {
        if (const int64_t at = Position(p, b, s); at < 0 || at >= p.cosine->shape[0]) {
          return Invalid(context, fmt::format("position {} is outside the cache of {}", at,
                                              p.cosine->shape[0]));
        }
      }
    }
  }
  return VisitFloat(context.inputs[0].type, [&](auto tag) {
    Rotate<typename decltype(tag)::Type>(context, p);
    return absl::OkStatus();
  });
}

}  // namespace

absl::Span<const OpDef> RotaryOps() {
  static const OpDef ops[] = {
      {"", "RotaryEmbedding", 23, RotaryShape<false>, RotaryCompute<false>, ViewKind::kNone, 0},
      {"com.microsoft", "RotaryEmbedding", 1, RotaryShape<true>, RotaryCompute<true>,
       ViewKind::kNone, 0},
  };
  return ops;
}

}  // namespace kvlift::exec
