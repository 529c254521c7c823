// com.microsoft GroupQueryAttention: grouped heads over a cache that the operator extends, with
// optional RoPE of queries and keys.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/status.h"
#include "exec/kernels/common/move_util.h"
#include "exec/kernels/common/tables.h"
#include "exec/kernels/fused/fused_attention.h"
#include "exec/kernels/fused/gqa_cache.h"
#include "exec/kernels/fused/gqa_plan.h"
#include "exec/kernels/products/gemm_product.h"
#include "ir/types.h"

namespace kvlift::exec {
namespace {

using namespace math;  // NOLINT

absl::Status GqaShape(KernelContext& context) {
  KV_ASSIGN_OR_RETURN(const GqaPlan p, PlanGqa(context));
  const int32_t type = context.inputs[kQuery].type;
  const int64_t capacity = p.window > 0 ? p.capacity : p.M;
  SetSpec(context, 0, type, {p.B, p.S, p.N * p.D});
  SetSpec(context, 1, p.cache_type, {p.B, p.Nk, capacity, StoredSize(p)});
  SetSpec(context, 2, p.cache_type, {p.B, p.Nk, capacity, StoredSize(p)});
  if (WantsScores(context)) {
    const int64_t mode = IntAttribute(context, "qk_output", 0);
    if (mode != 1 && mode != 2) return Invalid(context, "output_qk needs qk_output 1 or 2");
    SetSpec(context, 3, type, {p.B, p.N, p.S, p.total});
  }
  context.specs->resize(static_cast<size_t>(context.node.output_size()));
  return absl::OkStatus();
}

// Returns the RoPE position of token s of batch entry b. In a prompt only the first position id
// counts.
int64_t Position(const KernelContext& context, const GqaPlan& p, int64_t b, int64_t s) {
  const int64_t keys = move::IndexAt(context.inputs[kSeqlens], b) + 1;
  if (HasInput(context, kPositions)) {
    const int64_t* ids = context.inputs[kPositions].as<int64_t>();
    return p.prompt ? ids[0] + s : ids[b * p.S + s];
  }
  return p.prompt ? s : keys - p.S + s;
}

template <typename T>
class GqaRun {
 public:
  using C = Compute<T>;

  GqaRun(KernelContext& context, const GqaPlan& plan) : context_(context), p_(plan) {}

  absl::Status Run() {
    KV_RETURN_IF_ERROR(CheckPositions());
    const T* query = context_.inputs[kQuery].as<T>();
    C* q = scratch_.Get<C>(p_.B * p_.N * p_.S * p_.D);
    C* k = scratch_.Get<C>(p_.B * p_.Nk * p_.S * p_.D);
    C* v = scratch_.Get<C>(p_.B * p_.Nk * p_.S * p_.D);
    const int64_t width = context_.inputs[kQuery].shape[2];
    const HeadSource packed = {p_.S * width, width, p_.D};
    const HeadSource own = {p_.S * p_.Nk * p_.D, p_.Nk * p_.D, p_.D};
    LoadHeads<T>(query, packed, nullptr, p_.B, p_.N, p_.S, p_.D, q);
    LoadHeads<T>(p_.packed ? query + p_.N * p_.D : context_.inputs[kKey].as<T>(),
                 p_.packed ? packed : own, nullptr, p_.B, p_.Nk, p_.S, p_.D, k);
    LoadHeads<T>(p_.packed ? query + (p_.N + p_.Nk) * p_.D : context_.inputs[kValue].as<T>(),
                 p_.packed ? packed : own, nullptr, p_.B, p_.Nk, p_.S, p_.D, v);
    KV_RETURN_IF_ERROR(Normalize(kQueryNorm, p_.N, q));
    KV_RETURN_IF_ERROR(Normalize(kKeyNorm, p_.Nk, k));
    Rotate(p_.N, q);
    Rotate(p_.Nk, k);

    FusedHeads<C> heads;
    heads.B = p_.B;
    heads.N = p_.N;
    heads.Nk = p_.Nk;
    heads.S = p_.S;
    heads.M = p_.M;
    heads.D = heads.Dv = p_.D;
    heads.q = q;
    auto* keys = scratch_.Get<int64_t>(p_.B);
    auto* past = scratch_.Get<int64_t>(p_.B);
    for (int64_t b = 0; b < p_.B; ++b) {
      keys[b] = Keys(b);
      past[b] = Past(b);
    }
    heads.keys = keys;
    heads.past = past;
    const float scale = FloatAttribute(context_, "scale", 0);
    heads.scale = scale != 0 ? scale : 1 / std::sqrt(static_cast<double>(p_.D));
    heads.softcap = FloatAttribute(context_, "softcap", 0);
    heads.causal = IntAttribute(context_, "causal", 1) != 0;
    const int64_t window = IntAttribute(context_, "local_window_size", -1);
    heads.window = window > 0 ? window : -1;
    KV_RETURN_IF_ERROR(ReadAttentionBias<T>(context_, kBias, p_.total, scratch_, &heads));
    KV_RETURN_IF_ERROR(ReadSink(&heads));
    if (WantsOutput(context_, 3)) {
      heads.scores = scratch_.Get<C>(context_.outputs[3].size());
      heads.scores_keys = p_.total;
      heads.probabilities = IntAttribute(context_, "qk_output", 0) == 2;
    }
    if (!p_.quantized && p_.window == 0) {
      Attend(heads, Present(kPastKey, 1, k), Present(kPastValue, 2, v));
    } else if constexpr (std::is_same_v<C, float>) {
      const StagedRows staged = Stage(keys, past);
      auto* first = scratch_.Get<int64_t>(p_.B);
      for (int64_t b = 0; b < p_.B; ++b) first[b] = Past(b) - past[b];
      heads.first = first;
      heads.M = staged.rows;
      heads.k = Staged(staged, kPastKey, k);
      heads.v = Staged(staged, kPastValue, v);
      AttendWide(heads);
    } else {
      return Unsupported(context_, "a cache of this form for this type");
    }
    if (heads.scores != nullptr) {
      NarrowArray(heads.scores, context_.outputs[3].size(), context_.outputs[3].as<T>());
    }
    return absl::OkStatus();
  }

 private:
  int64_t Keys(int64_t b) const { return move::IndexAt(context_.inputs[kSeqlens], b) + 1; }
  int64_t Past(int64_t b) const { return p_.prompt ? 0 : Keys(b) - p_.S; }

  absl::Status CheckPositions() const {
    for (int64_t b = 0; p_.R > 0 && b < p_.B; ++b) {
      for (int64_t s = 0; s < p_.S; ++s) {
        const int64_t at = Position(context_, p_, b, s);
        if (at < 0 || at >= context_.inputs[kCos].shape[0]) {
          return Invalid(context_, fmt::format("position {} is outside of the caches", at));
        }
      }
    }
    return absl::OkStatus();
  }

  absl::Status ReadSink(FusedHeads<C>* heads) {
    const bool given = HasInput(context_, kSink);
    if (!given && IntAttribute(context_, "smooth_softmax", 0) != 1) return absl::OkStatus();
    C* sink = scratch_.Get<C>(p_.N);
    std::fill(sink, sink + p_.N, C{0});
    if (given) {
      const View& view = context_.inputs[kSink];
      if (view.size() != p_.N || view.type != context_.inputs[kQuery].type) {
        return Invalid(context_, "head_sink must have one element per head");
      }
      WidenArray(view.as<T>(), p_.N, sink);
    }
    heads->sink = sink;
    return absl::OkStatus();
  }

  // Applies RMS normalisation to every head.
  absl::Status Normalize(size_t input, int64_t heads, C* x) const {
    if (!HasInput(context_, input)) return absl::OkStatus();
    const View& weight = context_.inputs[input];
    if (weight.size() != p_.D || weight.type != context_.inputs[kQuery].type) {
      return Invalid(context_, "a norm weight must have one element per element of a head");
    }
    const C epsilon = FloatAttribute(context_, "qk_norm_epsilon", 1e-6f);
    for (int64_t row = 0; row < p_.B * heads * p_.S; ++row, x += p_.D) {
      const C mean = Vectors<C>().sum_squares(x, p_.D) / static_cast<C>(p_.D);
      const C deviation = std::sqrt(mean + epsilon);
      for (int64_t d = 0; d < p_.D; ++d) {
        x[d] = Widen(Narrow<T>(x[d] / deviation * Widen(weight.as<T>()[d])));
      }
    }
    return absl::OkStatus();
  }

  void Rotate(int64_t heads, C* x) const {
    if (p_.R == 0) return;
    const bool interleaved = IntAttribute(context_, "rotary_interleaved", 0) != 0;
    const int64_t half = p_.R / 2;
    for (int64_t row = 0; row < p_.B * heads * p_.S; ++row, x += p_.D) {
      const int64_t line = Position(context_, p_, row / p_.S / heads, row % p_.S) * half;
      const T* cosine = context_.inputs[kCos].as<T>() + line;
      const T* sine = context_.inputs[kSin].as<T>() + line;
      for (int64_t i = 0; i < half; ++i) {
        C& first = x[interleaved ? 2 * i : i];
        C& second = x[interleaved ? 2 * i + 1 : i + half];
        const C a = first, b = second, c = Widen(cosine[i]), n = Widen(sine[i]);
        first = Widen(Narrow<T>(c * a - n * b));
        second = Widen(Narrow<T>(n * a + c * b));
      }
    }
  }

  void Attend(FusedHeads<C>& heads, const T* k, const T* v) {
    const View& output = context_.outputs[0];
    if constexpr (std::is_same_v<C, float>) {
      if (!context_.canonical && heads.scores == nullptr) {
        constexpr Storage kStored = StorageOf<T>();
        return RunFusedGrouped(heads, {k, kStored}, {v, kStored}, {output.data, kStored},
                               context_.threads);
      }
    }
    heads.k = Widened(k);
    heads.v = Widened(v);
    AttendWide(heads);
  }

  void AttendWide(FusedHeads<C>& heads) {
    const View& output = context_.outputs[0];
    C* y = scratch_.Get<C>(output.size());
    heads.y = y;
    RunFusedHeads(heads, context_.threads);
    NarrowArray(y, output.size(), output.as<T>());
  }

  const C* Widened(const T* cache) {
    const int64_t size = p_.B * p_.Nk * p_.M * p_.D;
    C* wide = scratch_.Get<C>(size);
    WidenArray(cache, size, wide);
    return wide;
  }

  // Decides where the rows of a quantised or windowed cache go. Changes `keys` and `past` to slots
  // of the stage.
  StagedRows Stage(int64_t* keys, int64_t* past) const {
    StagedRows staged;
    staged.Nk = p_.Nk;
    staged.S = p_.S;
    staged.D = p_.D;
    staged.past_capacity = p_.P;
    staged.rows = staged.capacity = p_.M;
    staged.entries.resize(static_cast<size_t>(p_.B));
    if (p_.window == 0) {
      for (int64_t b = 0; b < p_.B; ++b) {
        staged.entries[b] = {p_.P == p_.M ? p_.P : past[b], past[b], 0, p_.M};
      }
      return staged;
    }
    staged.capacity = p_.capacity;
    staged.rows = p_.S;
    for (int64_t b = 0; b < p_.B; ++b) {
      const int64_t fresh = keys[b] - past[b];
      const int64_t old = ResidentRows(past[b], p_.capacity, p_.window);
      const int64_t kept = ResidentRows(keys[b], p_.capacity, p_.window);
      staged.entries[b] = {old, old, old + fresh - kept, kept};
      staged.rows = std::max(staged.rows, old + p_.S);
      past[b] = old;
      keys[b] = old + fresh;
    }
    return staged;
  }

  // Writes the present of a staged cache, and returns the stage as floats.
  const float* Staged(const StagedRows& staged, size_t past, const float* fresh) {
    const size_t side = past - kPastKey;
    const CacheRows rows = p_.quantized
                               ? CacheRows(p_.cache_type, p_.D, context_.inputs[kKeyScale + side])
                               : CacheRows(p_.cache_type, p_.D);
    const int64_t count = p_.B * p_.Nk * staged.rows;
    auto* stage = scratch_.Get<std::byte>(count * rows.bytes());
    auto* wide = scratch_.Get<float>(count * p_.D);
    StageRows(staged, rows, p_.P > 0 ? context_.inputs[past].data : nullptr, fresh, stage,
              WantsOutput(context_, 1 + side) ? context_.outputs[1 + side].data : nullptr, wide);
    return wide;
  }

  // Writes the present cache, with new tokens behind the valid ones. Slots without a token keep the
  // content of the past if the capacity has not grown, else they are 0.
  const T* Present(size_t past, size_t output, const C* fresh) {
    T* out = WantsOutput(context_, output) ? context_.outputs[output].template as<T>()
                                           : scratch_.Get<T>(p_.B * p_.Nk * p_.M * p_.D);
    const T* old = p_.P > 0 ? context_.inputs[past].template as<T>() : nullptr;
    ParallelFor(context_.threads, p_.B * p_.Nk, 1,
                std::max<int64_t>(1, (1 << 17) / (p_.M * p_.D + 1)),
                [&](int64_t begin, int64_t end) {
                  for (int64_t i = begin; i < end; ++i) {
                    const int64_t b = i / p_.Nk;
                    T* to = out + i * p_.M * p_.D;
                    const int64_t kept = p_.P == p_.M ? p_.P : Past(b);
                    if (old != nullptr && old != out) {
                      std::copy_n(old + i * p_.P * p_.D, kept * p_.D, to);
                    }
                    NarrowArray(fresh + i * p_.S * p_.D, p_.S * p_.D, to + Past(b) * p_.D);
                    std::fill(to + std::max(kept, Past(b) + p_.S) * p_.D, to + p_.M * p_.D,
                              Narrow<T>(C{0}));
                  }
                });
    return out;
  }

  KernelContext& context_;
  const GqaPlan& p_;
  ScratchScope scratch_;
};

absl::Status GqaCompute(KernelContext& context) {
  KV_ASSIGN_OR_RETURN(const GqaPlan plan, PlanGqa(context));
  return VisitFloat(context.inputs[0].type, [&](auto tag) {
    return GqaRun<typename decltype(tag)::Type>(context, plan).Run();
  });
}

}  // namespace

absl::Span<const OpDef> GroupQueryOps() {
  static const OpDef ops[] = {
      {"com.microsoft", "GroupQueryAttention", 1, GqaShape, GqaCompute},
  };
  return ops;
}

}  // namespace kvlift::exec
