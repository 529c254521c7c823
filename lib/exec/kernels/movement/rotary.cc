// RotaryEmbedding-23, and RotaryEmbedding and MRotaryEmbedding of com.microsoft.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <vector>

#include "base/status.h"
#include "exec/kernels/common/math_util.h"
#include "exec/kernels/common/move_util.h"
#include "exec/kernels/common/tables.h"

namespace kvlift::exec {
namespace {

using namespace math;  // NOLINT

// kMultimodal is MRotaryEmbedding: each token has three positions (time, height, width), and each
// pair of rotated elements belongs to one of them.
enum class RotaryKind { kOnnx, kMicrosoft, kMultimodal };
constexpr size_t kStreams = 3;

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
  std::vector<size_t> streams;    // of each of the R / 2 pairs; empty: each token has one position
};

// Returns the position, of those of MRotaryEmbedding, that each pair of elements is rotated by.
absl::StatusOr<std::vector<size_t>> StreamsOfPairs(const KernelContext& context, int64_t pairs) {
  constexpr int64_t kSections = 0, kInterleaved = 1;
  const move::Ints sections = move::IntsAttribute(context, "mrope_section");
  const int64_t layout = IntAttribute(context, "mrope_layout", kSections);
  if (sections.size() != kStreams || (layout != kSections && layout != kInterleaved) ||
      *std::min_element(sections.begin(), sections.end()) < 0 ||
      *std::max_element(sections.begin(), sections.end()) > pairs ||
      sections[0] + sections[1] + sections[2] != pairs) {
    return Invalid(context, "mrope_section or mrope_layout does not fit");
  }
  std::vector<size_t> streams(static_cast<size_t>(pairs), 0);
  for (int64_t i = 0; i < pairs; ++i) {
    if (layout == kSections) {
      streams[i] = i < sections[0] ? 0 : i < sections[0] + sections[1] ? 1 : 2;
    } else if (i % 3 != 0 && i < 3 * sections[i % 3]) {
      streams[i] = static_cast<size_t>(i % 3);
    }
  }
  return streams;
}

absl::StatusOr<RotaryPlan> PlanRotary(const KernelContext& context, RotaryKind kind) {
  const bool microsoft = kind != RotaryKind::kOnnx;
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
    if (kind == RotaryKind::kMultimodal) {
      if (IntAttribute(context, "is_packed_batching", 0) != 0) {
        return Invalid(context, "packed batches are not known");
      }
      if (p.positions->shape != Shape({int64_t{kStreams}, p.B, p.S})) {
        return Invalid(context, fmt::format("position_ids {} do not fit X {}",
                                            ShapeString(p.positions->shape), ShapeString(x.shape)));
      }
      KV_ASSIGN_OR_RETURN(p.streams, StreamsOfPairs(context, p.R / 2));
      return p;
    }
    p.offset_positions = microsoft && p.positions->size() == 1 && p.B * p.S != 1;
    if (!p.offset_positions && p.positions->shape != Shape({p.B, p.S})) {
      return Invalid(context, fmt::format("position_ids {} do not fit X {}",
                                          ShapeString(p.positions->shape), ShapeString(x.shape)));
    }
  }
  return p;
}

template <RotaryKind kKind>
absl::Status RotaryShape(KernelContext& context) {
  KV_ASSIGN_OR_RETURN(const RotaryPlan plan, PlanRotary(context, kKind));
  (void)plan;
  return SameAsInput(context);
}

int64_t Position(const RotaryPlan& p, size_t stream, int64_t b, int64_t s) {
  const int64_t* ids = p.positions->as<int64_t>() + static_cast<int64_t>(stream) * p.B * p.S;
  return p.offset_positions ? ids[0] + s : ids[b * p.S + s];
}

template <typename T>
void Rotate(KernelContext& context, const RotaryPlan& p) {
  const T* x = context.inputs[0].as<T>();
  T* y = context.outputs[0].as<T>();
  const T* cosine = p.cosine->as<T>();
  const T* sine = p.sine->as<T>();
  const int64_t half = p.R / 2;
  const size_t streams = p.streams.empty() ? 1 : kStreams;
  ParallelFor(context.threads, p.B * p.S, 1, std::max<int64_t>(1, 16384 / (p.N * p.D + 1)),
              [&](int64_t begin, int64_t end) {
                for (int64_t unit = begin; unit < end; ++unit) {
                  const int64_t b = unit / p.S, s = unit % p.S;
                  std::array<int64_t, kStreams> lines = {};  // of the tables
                  lines[0] = (p.cosine->shape[0] == 1 ? 0 : b * p.S) + s;
                  for (size_t k = 0; p.positions != nullptr && k < streams; ++k) {
                    lines[k] = Position(p, k, b, s);
                  }
                  for (int64_t h = 0; h < p.N; ++h) {
                    const int64_t at = b * p.batch + h * p.head + s * p.token;
                    for (int64_t i = 0; i < half; ++i) {
                      const int64_t first = at + (p.interleaved ? 2 * i : i);
                      const int64_t second = p.interleaved ? first + 1 : first + half;
                      const int64_t turn = lines[streams == 1 ? 0 : p.streams[i]] * half + i;
                      const auto x1 = Widen(x[first]), x2 = Widen(x[second]);
                      const auto c = Widen(cosine[turn]), n = Widen(sine[turn]);
                      y[first] = Narrow<T>(c * x1 - n * x2);
                      y[second] = Narrow<T>(n * x1 + c * x2);
                    }
                    if (x != y) std::copy(x + at + p.R, x + at + p.D, y + at + p.R);
                  }
                }
              });
}

template <RotaryKind kKind>
absl::Status RotaryCompute(KernelContext& context) {
  KV_ASSIGN_OR_RETURN(const RotaryPlan p, PlanRotary(context, kKind));
  const size_t streams = p.positions == nullptr ? 0 : p.streams.empty() ? 1 : kStreams;
  for (size_t k = 0; k < streams; ++k) {
    for (int64_t token = 0; token < p.B * p.S; ++token) {
      const int64_t at = Position(p, k, token / p.S, token % p.S);
      if (at >= 0 && at < p.cosine->shape[0]) continue;
      return Invalid(context,
                     fmt::format("position {} is outside the cache of {}", at, p.cosine->shape[0]));
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
      {"", "RotaryEmbedding", 23, RotaryShape<RotaryKind::kOnnx>, RotaryCompute<RotaryKind::kOnnx>,
       ViewKind::kNone, 0},
      {"com.microsoft", "RotaryEmbedding", 1, RotaryShape<RotaryKind::kMicrosoft>,
       RotaryCompute<RotaryKind::kMicrosoft>, ViewKind::kNone, 0},
      {"com.microsoft", "MRotaryEmbedding", 1, RotaryShape<RotaryKind::kMultimodal>,
       RotaryCompute<RotaryKind::kMultimodal>, ViewKind::kNone, 0},
  };
  return ops;
}

}  // namespace kvlift::exec
