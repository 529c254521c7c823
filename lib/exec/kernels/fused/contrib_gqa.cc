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
#include "exec/kernels/products/gemm_product.h"
#include "ir/types.h"

namespace kvlift::exec {
namespace {

using namespace math;  // NOLINT

enum Input {
  kQuery,
  kKey,
  kValue,
  kPastKey,
  kPastValue,
  kSeqlens,
  kTotal,
  kCos,
  kSin,
  kPositions,
  kBias,
  kSink,
  kKeyScale,
  kValueScale,
  kQueryNorm,
  kKeyNorm
};

// P is the capacity of the past, M that of the present; R is the number of elements of a head that
// RoPE rotates, 0 without RoPE.
struct GqaPlan {
  int64_t B = 0, N = 0, Nk = 0, S = 0, P = 0, M = 0, D = 0, R = 0;
  int64_t total = 0;  // the longest sequence, with new tokens
  int32_t cache_type = 0;
  bool quantized = false;
  // Capacity and window, in tokens, of a cache that holds a sliding window of the sequence; 0: the
  // cache holds the whole sequence.
  int64_t capacity = 0, window = 0;
  bool packed = false;
  bool prompt = false;  // the cache has no token yet
};

absl::Status CheckInputs(const KernelContext& context) {
  if (HasInput(context, kQueryNorm) != HasInput(context, kKeyNorm)) {
    return Invalid(context, "q_norm_weight and k_norm_weight must be given together");
  }
  return absl::OkStatus();
}

absl::Status ReadHeads(const KernelContext& context, GqaPlan* plan) {
  GqaPlan& p = *plan;
  const View& query = context.inputs[kQuery];
  p.N = IntAttribute(context, "num_heads", 0);
  p.Nk = IntAttribute(context, "kv_num_heads", 0);
  if (p.N <= 0 || p.Nk <= 0 || p.N % p.Nk != 0) {
    return Invalid(context, "num_heads must be a multiple of kv_num_heads");
  }
  if (query.shape.size() != 3) return Invalid(context, "query must have rank 3");
  p.B = query.shape[0];
  p.S = query.shape[1];
  p.packed = !HasInput(context, kKey);
  if (p.packed == HasInput(context, kValue)) {
    return Invalid(context, "key and value must be given together");
  }
  const int64_t heads = p.packed ? p.N + 2 * p.Nk : p.N;
  p.D = query.shape[2] / heads;
  if (p.D == 0 || query.shape[2] % heads != 0) return Invalid(context, "heads do not fit query");
  for (const size_t i : {size_t{kKey}, size_t{kValue}}) {
    if (!p.packed && (context.inputs[i].shape != Shape({p.B, p.S, p.Nk * p.D}) ||
                      context.inputs[i].type != query.type)) {
      return Invalid(context,
                     fmt::format("{} does not fit query {}", ShapeString(context.inputs[i].shape),
                                 ShapeString(query.shape)));
    }
  }
  return absl::OkStatus();
}

bool WantsScores(const KernelContext& context) {
  return context.node.output_size() > 3 && !context.node.output(3).empty();
}

// Returns the elements of a stored row of the cache.
int64_t StoredSize(const GqaPlan& p) {
  return p.cache_type == onnx::TensorProto::UINT8 ? p.D / 2 : p.D;
}

// Reads the type of the cache and, if it is quantised, its scales.
absl::Status ReadCacheType(const KernelContext& context, GqaPlan* plan) {
  GqaPlan& p = *plan;
  const int32_t own = context.inputs[kQuery].type;
  const int64_t bits = IntAttribute(context, "kv_cache_bit_width", 0);
  const auto form = StringAttribute(context, "k_quant_type", "NONE");
  p.cache_type = own;
  if (HasInput(context, kPastKey)) {
    p.cache_type = context.inputs[kPastKey].type;
  } else if (form != "NONE") {
    p.cache_type = bits == 4 ? onnx::TensorProto::UINT8 : onnx::TensorProto::INT8;
  }
  if (p.cache_type == own && form == "NONE") return absl::OkStatus();
  p.quantized = true;
  const bool packed = p.cache_type == onnx::TensorProto::UINT8;
  if ((!packed && p.cache_type != onnx::TensorProto::INT8 &&
       p.cache_type != onnx::TensorProto::FLOAT8E4M3FN) ||
      (bits != 0 && bits != (packed ? 4 : 8)) || (packed && p.D % 2 != 0)) {
    return Unsupported(
        context, fmt::format("a cache of {} with {} bits", ElementTypeName(p.cache_type), bits));
  }
  const char* const names[] = {"k_quant_type", "v_quant_type"};
  for (const size_t i : {size_t{kKeyScale}, size_t{kValueScale}}) {
    const bool single = StringAttribute(context, names[i - kKeyScale], "NONE") == "PER_TENSOR";
    if (!HasInput(context, i) || context.inputs[i].type != onnx::TensorProto::FLOAT ||
        context.inputs[i].size() != (single ? 1 : p.Nk * p.D)) {
      return Invalid(context, "the scales of the quantized cache do not fit");
    }
  }
  return absl::OkStatus();
}

absl::Status ReadCaches(const KernelContext& context, GqaPlan* plan) {
  GqaPlan& p = *plan;
  if (HasInput(context, kPastKey) != HasInput(context, kPastValue)) {
    return Invalid(context, "past_key and past_value must be given together");
  }
  KV_RETURN_IF_ERROR(ReadCacheType(context, &p));
  if (HasInput(context, kPastKey)) {
    const Shape& shape = context.inputs[kPastKey].shape;
    p.P = shape.size() == 4 ? shape[2] : 0;
    for (const size_t i : {size_t{kPastKey}, size_t{kPastValue}}) {
      if (context.inputs[i].shape != Shape({p.B, p.Nk, p.P, StoredSize(p)})) {
        return Invalid(context,
                       fmt::format("past {} does not fit", ShapeString(context.inputs[i].shape)));
      }
      if (context.inputs[i].type != p.cache_type) {
        return Invalid(context, "past_key and past_value differ in type");
      }
    }
  }
  const View& lengths = context.inputs[kSeqlens];
  if (!move::IsIndexType(lengths.type) || lengths.size() != p.B) {
    return Invalid(context, "seqlens_k must have one integer per batch entry");
  }
  const View& total = context.inputs[kTotal];
  if (!move::IsIndexType(total.type) || total.size() != 1) {
    return Invalid(context, "total_sequence_length must be one integer");
  }
  p.total = move::IndexAt(total, 0);
  p.M = std::max(p.total, p.P);
  p.prompt = p.S == p.total;
  if (IntAttribute(context, "sliding_window_cache", 0) != 0) {
    p.window = IntAttribute(context, "local_window_size", -1);
    p.capacity = p.P;
    if (p.window <= 0 || p.capacity < p.window) {
      return Invalid(context, "sliding_window_cache needs a window within the past's capacity");
    }
  }
  const bool by_position = HasInput(context, kBias) || WantsScores(context);
  for (int64_t b = 0; b < p.B; ++b) {
    const int64_t keys = move::IndexAt(lengths, b) + 1;
    const int64_t past = p.prompt ? 0 : keys - p.S;
    if (keys < 0 || keys > p.M || past < 0 || past + p.S > p.M || (past > p.P && p.window == 0) ||
        (by_position && keys > p.total)) {
      return Invalid(context, fmt::format("seqlens_k[{}] = {} does not fit {} past and {} new "
                                          "tokens",
                                          b, keys - 1, p.P, p.S));
    }
  }
  return absl::OkStatus();
}

absl::Status ReadRotary(const KernelContext& context, GqaPlan* plan) {
  GqaPlan& p = *plan;
  if (IntAttribute(context, "do_rotary", 0) == 0) return absl::OkStatus();
  if (!HasInput(context, kCos) || !HasInput(context, kSin)) {
    return Invalid(context, "do_rotary needs cos_cache and sin_cache");
  }
  const View& cosine = context.inputs[kCos];
  const View& sine = context.inputs[kSin];
  if (cosine.shape.size() != 2 || sine.shape != cosine.shape || 2 * cosine.shape[1] > p.D ||
      cosine.type != context.inputs[kQuery].type || sine.type != cosine.type) {
    return Invalid(context, "cos_cache and sin_cache do not fit");
  }
  p.R = 2 * cosine.shape[1];
  if (HasInput(context, kPositions) &&
      (context.inputs[kPositions].type != onnx::TensorProto::INT64 ||
       context.inputs[kPositions].size() < (p.prompt ? 1 : p.B * p.S))) {
    return Invalid(context, "position_ids do not fit");
  }
  return absl::OkStatus();
}

absl::StatusOr<GqaPlan> PlanGqa(const KernelContext& context) {
  KV_RETURN_IF_ERROR(NeedInputs(context, 1));
  if (!HasInput(context, kSeqlens) || !HasInput(context, kTotal)) {
    return Invalid(context, "seqlens_k or total_sequence_length is missing");
  }
  GqaPlan plan;
  KV_RETURN_IF_ERROR(CheckInputs(context));
  KV_RETURN_IF_ERROR(ReadHeads(context, &plan));
  KV_RETURN_IF_ERROR(ReadCaches(context, &plan));
  KV_RETURN_IF_ERROR(ReadRotary(context, &plan));
  return plan;
}

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
