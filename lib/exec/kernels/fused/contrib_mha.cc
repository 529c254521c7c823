// com.microsoft MultiHeadAttention, and Attention, which projects its input first. Both append the
// new keys and values to the past.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/status.h"
#include "exec/kernels/common/move_util.h"
#include "exec/kernels/common/tables.h"
#include "exec/kernels/fused/fused_attention.h"
#include "exec/kernels/products/gemm_product.h"

namespace kvlift::exec {
namespace {

using namespace math;  // NOLINT

// L is the number of new keys, P of past ones, T = P + L. M is the number of slots of the present,
// which is T unless it shares the past's buffer. Dv is the head size of the values.
struct MhaPlan {
  int64_t B = 0, N = 0, S = 0, L = 0, P = 0, T = 0, M = 0, D = 0, Dv = 0;
  int64_t past_slots = 0;  // P, or M of a shared buffer
};

// Reads a padding mask as a bias [B, S or 1, T] of 0 and `filter`. The mask may be: lengths [B];
// ends and starts [2 B]; lengths and offsets [3 B + 2], of which only the lengths count; [B, T];
// [B, S, T].
template <typename C>
absl::Status ReadMask(const KernelContext& context, size_t input, const MhaPlan& p,
                      ScratchScope& scratch, FusedHeads<C>* heads) {
  if (!HasInput(context, input)) return absl::OkStatus();
  const View& mask = context.inputs[input];
  const Shape& shape = mask.shape;
  if (!move::IsIndexType(mask.type)) return Invalid(context, "a mask must be int32");
  const C filter = FloatAttribute(context, "mask_filter_value", -10000);
  const bool rows = shape.size() > 2;
  C* bias = scratch.Get<C>(p.B * (rows ? p.S : 1) * p.T);
  heads->mask = bias;
  heads->mask_b = (rows ? p.S : 1) * p.T;
  heads->mask_s = rows ? p.T : 0;
  if (shape == Shape({p.B}) || shape == Shape({2 * p.B}) || shape == Shape({3 * p.B + 2})) {
    for (int64_t i = 0; i < p.B * p.T; ++i) {
      const int64_t b = i / p.T, t = i % p.T;
      const int64_t start = shape[0] == 2 * p.B ? move::IndexAt(mask, p.B + b) : 0;
      bias[i] = t >= start && t < move::IndexAt(mask, b) ? C{0} : filter;
    }
    return absl::OkStatus();
  }
  if (shape != Shape({p.B, p.T}) && shape != Shape({p.B, p.S, p.T})) {
    return Invalid(context, fmt::format("mask {} does not fit", ShapeString(shape)));
  }
  for (int64_t i = 0; i < mask.size(); ++i) bias[i] = move::IndexAt(mask, i) > 0 ? C{0} : filter;
  return absl::OkStatus();
}

// Joins past and new rows of every head in `out`, [B, N, M, size].
template <typename T>
void Join(const MhaPlan& p, const T* past, const Compute<T>* fresh, int64_t size, T* out) {
  for (int64_t i = 0; i < p.B * p.N; ++i, out += p.M * size) {
    if (past != nullptr) std::copy_n(past + i * p.past_slots * size, p.past_slots * size, out);
    NarrowArray(fresh + i * p.L * size, p.L * size, out + p.P * size);
  }
}

template <typename T>
const Compute<T>* Wide(const T* x, int64_t n, ScratchScope& scratch) {
  auto* wide = scratch.Get<Compute<T>>(n);
  WidenArray(x, n, wide);
  return wide;
}

// Returns heads with all fields set except q, k, v and the masks.
template <typename C>
FusedHeads<C> MakeHeads(const KernelContext& context, const MhaPlan& p, ScratchScope& scratch) {
  FusedHeads<C> heads;
  heads.B = p.B;
  heads.N = heads.Nk = p.N;
  heads.S = p.S;
  heads.M = p.M;
  heads.D = p.D;
  heads.Dv = p.Dv;
  auto* keys = scratch.Get<int64_t>(p.B);
  auto* past = scratch.Get<int64_t>(p.B);
  std::fill(keys, keys + p.B, p.T);
  std::fill(past, past + p.B, p.P);
  heads.keys = keys;
  heads.past = past;
  const float scale = FloatAttribute(context, "scale", 0);
  heads.scale = scale != 0 ? scale : 1 / std::sqrt(static_cast<double>(p.D));
  heads.causal = IntAttribute(context, "unidirectional", 0) == 1;
  heads.last_sees_all = true;  // as in ONNX Runtime; it shows where there are more keys than P + S
  return heads;
}

// The keys or values of all T tokens: as joined with the past, or the new ones alone.
template <typename T>
struct Joined {
  const T* rows = nullptr;
  const Compute<T>* fresh = nullptr;

  const Compute<T>* Widened(int64_t n, ScratchScope& scratch) const {
    return rows != nullptr ? Wide(rows, n, scratch) : fresh;
  }
  StoredOperand Stored() const {
    if (rows != nullptr) return {rows, StorageOf<T>()};
    return {fresh, Storage::kNative};
  }
};

template <typename T>
absl::Status Finish(KernelContext& context, const Joined<T>& k, const Joined<T>& v,
                    FusedHeads<Compute<T>>& heads, ScratchScope& scratch) {
  const View& output = context.outputs[0];
  if constexpr (std::is_same_v<Compute<T>, float>) {
    if (!context.canonical && heads.scores == nullptr) {
      RunFusedGrouped(heads, k.Stored(), v.Stored(), {output.data, StorageOf<T>()},
                      context.threads);
      return absl::OkStatus();
    }
  }
  const int64_t rows = heads.B * heads.Nk * heads.M;
  heads.k = k.Widened(rows * heads.D, scratch);
  heads.v = v.Widened(rows * heads.Dv, scratch);
  heads.y = scratch.Get<Compute<T>>(output.size());
  RunFusedHeads(heads, context.threads);
  NarrowArray(heads.y, output.size(), output.as<T>());
  return absl::OkStatus();
}

// MultiHeadAttention. ----------------------------------------------------------------------------

enum MhaInput {
  kQ,
  kK,
  kV,
  kQkvBias,
  kPadding,
  kAttentionBias,
  kMhaPastKey,
  kMhaPastValue,
  kPastLength,
  kBeams
};

absl::Status Misfit(const KernelContext& context, size_t input) {
  return Invalid(context, fmt::format("input {} {} does not fit", input,
                                      ShapeString(context.inputs[input].shape)));
}

absl::Status ReadKeys(const KernelContext& context, int64_t hidden, MhaPlan* plan) {
  MhaPlan& p = *plan;
  p.D = p.Dv = hidden / p.N;
  p.L = p.S;
  if (!HasInput(context, kK)) return absl::OkStatus();  // keys and values are packed in the query
  const Shape& k = context.inputs[kK].shape;
  if (k.size() == 5 && k == Shape({p.B, k[1], p.N, 2, p.D})) {
    p.L = k[1];
    return HasInput(context, kV) ? Misfit(context, kV) : absl::OkStatus();
  }
  if (!HasInput(context, kV)) return Invalid(context, "value is missing");
  const Shape& v = context.inputs[kV].shape;
  if (k.size() == 3 && k == Shape({p.B, k[1], hidden})) {
    p.L = k[1];
    if (v.size() != 3 || v != Shape({p.B, p.L, v[2]}) || v[2] % p.N != 0) {
      return Misfit(context, kV);
    }
    p.Dv = v[2] / p.N;
  } else if (k.size() == 4 && k == Shape({p.B, p.N, k[2], p.D})) {
    p.L = k[2];
    if (v.size() != 4 || v != Shape({p.B, p.N, p.L, v[3]})) return Misfit(context, kV);
    p.Dv = v[3];
  } else {
    return Misfit(context, kK);
  }
  return absl::OkStatus();
}

// With past_sequence_length the past is a buffer of M slots, of which the first P are valid.
absl::Status ReadSharedBuffer(const KernelContext& context, MhaPlan* plan) {
  MhaPlan& p = *plan;
  p.past_slots = p.P;
  p.T = p.M = p.P + p.L;
  if (!HasInput(context, kPastLength)) {
    if (!HasInput(context, kBeams)) return absl::OkStatus();
    return Invalid(context, "cache_indirection needs past_sequence_length");
  }
  const View& length = context.inputs[kPastLength];
  if (!HasInput(context, kMhaPastKey) || !move::IsIndexType(length.type) || length.size() != 1) {
    return Invalid(context, "past_sequence_length must be one integer, with past_key");
  }
  p.M = p.past_slots;
  p.P = move::IndexAt(length, 0);
  p.T = p.P + p.L;
  if (p.P < 0 || p.P > p.M - p.L) {
    return Invalid(context,
                   fmt::format("{} past and {} new tokens do not fit {} slots", p.P, p.L, p.M));
  }
  if (!HasInput(context, kBeams)) return absl::OkStatus();
  const View& beams = context.inputs[kBeams];
  const int64_t width = beams.shape.size() == 3 ? beams.shape[1] : 0;
  if (width <= 0 || p.B % width != 0 || !move::IsIndexType(beams.type) ||
      beams.shape != Shape({p.B / width, width, p.M})) {
    return Misfit(context, kBeams);
  }
  return absl::OkStatus();
}

absl::Status CheckBeams(const KernelContext& context, const MhaPlan& p) {
  if (!HasInput(context, kBeams)) return absl::OkStatus();
  const View& beams = context.inputs[kBeams];
  for (int64_t row = 0; row < p.B; ++row) {
    for (int64_t t = 0; t < p.P; ++t) {
      const int64_t beam = move::IndexAt(beams, row * p.M + t);
      if (beam < 0 || beam >= beams.shape[1]) {
        return Invalid(context, "cache_indirection names no beam");
      }
    }
  }
  return absl::OkStatus();
}

// Returns the rows that the sequences see: past rows come from the beam that a sequence continues.
template <typename T>
const T* OfBeams(const KernelContext& context, const MhaPlan& p, const T* rows, int64_t size,
                 ScratchScope& scratch) {
  const View& beams = context.inputs[kBeams];
  const int64_t width = beams.shape[1], sequence = p.N * p.M * size;
  T* seen = scratch.Get<T>(p.B * sequence);
  std::copy_n(rows, p.B * sequence, seen);
  for (int64_t b = 0; b < p.B; ++b) {
    for (int64_t t = 0; t < p.P; ++t) {
      const int64_t from = b / width * width + move::IndexAt(beams, b * p.M + t);
      for (int64_t h = 0; h < p.N; ++h) {
        const int64_t at = (h * p.M + t) * size;
        std::copy_n(rows + from * sequence + at, size, seen + b * sequence + at);
      }
    }
  }
  return seen;
}

absl::StatusOr<MhaPlan> PlanMha(const KernelContext& context) {
  KV_RETURN_IF_ERROR(NeedInputs(context, 1));
  for (size_t i = 0; i < context.inputs.size(); ++i) {
    if (i != kPadding && i < kPastLength && HasInput(context, i) &&
        context.inputs[i].type != context.inputs[kQ].type) {
      return Invalid(context, "inputs differ in type");
    }
  }
  MhaPlan p;
  const Shape& q = context.inputs[kQ].shape;
  p.N = IntAttribute(context, "num_heads", 0);
  if (q.size() != 3 && q.size() != 5) return Misfit(context, kQ);
  p.B = q[0];
  p.S = q[1];
  const int64_t hidden = q.size() == 5 ? q[2] * q[4] : q[2];
  const bool packed = q.size() == 5;
  if (p.N <= 0 || hidden % p.N != 0 || hidden == 0 || packed == HasInput(context, kK) ||
      (packed && (q[2] != p.N || q[3] != 3))) {
    return Misfit(context, kQ);
  }
  KV_RETURN_IF_ERROR(ReadKeys(context, hidden, &p));
  if (HasInput(context, kQkvBias) &&
      context.inputs[kQkvBias].shape != Shape({2 * hidden + p.N * p.Dv})) {
    return Misfit(context, kQkvBias);
  }
  if (HasInput(context, kMhaPastKey) != HasInput(context, kMhaPastValue)) {
    return Invalid(context, "past_key and past_value must be given together");
  }
  if (HasInput(context, kMhaPastKey)) {
    const Shape& past = context.inputs[kMhaPastKey].shape;
    p.P = past.size() == 4 ? past[2] : 0;
    if (past != Shape({p.B, p.N, p.P, p.D})) return Misfit(context, kMhaPastKey);
    if (context.inputs[kMhaPastValue].shape != Shape({p.B, p.N, p.P, p.Dv})) {
      return Misfit(context, kMhaPastValue);
    }
  }
  KV_RETURN_IF_ERROR(ReadSharedBuffer(context, &p));
  return p;
}

absl::Status MhaShape(KernelContext& context) {
  KV_ASSIGN_OR_RETURN(const MhaPlan p, PlanMha(context));
  const int32_t type = context.inputs[kQ].type;
  if (context.node.output_size() > 3 && !context.node.output(3).empty()) {
    if (IntAttribute(context, "unidirectional", 0) == 1) {
      return Unsupported(context, "scores of causal attention are not supported");
    }
    SetSpec(context, 3, type, {p.B, p.N, p.S, p.T});
  }
  SetSpec(context, 0, type, {p.B, p.S, p.N * p.Dv});
  SetSpec(context, 1, type, {p.B, p.N, p.M, p.D});
  SetSpec(context, 2, type, {p.B, p.N, p.M, p.Dv});
  context.specs->resize(static_cast<size_t>(context.node.output_size()));
  return absl::OkStatus();
}

// The place of the elements of K or V: in an input of their own (rank 3 or 4), or packed.
template <typename T>
struct Part {
  const T* data;
  HeadSource source;
};
// An empty tensor has no data to point into.
template <typename T>
const T* Ahead(const View& view, int64_t elements) {
  return view.data == nullptr ? nullptr : view.as<T>() + elements;
}

template <typename T>
Part<T> PartOf(const KernelContext& context, const MhaPlan& p, size_t index) {
  const View& q = context.inputs[kQ];
  const int64_t part = static_cast<int64_t>(index) * p.D;
  if (q.shape.size() == 5) {
    return {Ahead<T>(q, part), {p.S * p.N * 3 * p.D, p.N * 3 * p.D, 3 * p.D}};
  }
  if (index == 0) return {q.as<T>(), {p.S * p.N * p.D, p.N * p.D, p.D}};
  const View& k = context.inputs[kK];
  if (k.shape.size() == 5) {
    return {Ahead<T>(k, part - p.D), {p.L * p.N * 2 * p.D, p.N * 2 * p.D, 2 * p.D}};
  }
  const View& own = context.inputs[index];
  const int64_t size = index == 1 ? p.D : p.Dv;
  if (own.shape.size() == 3) return {own.as<T>(), {p.L * p.N * size, p.N * size, size}};
  return {own.as<T>(), {p.N * p.L * size, size, p.L * size}};
}

template <typename T>
absl::Status MhaTyped(KernelContext& context, const MhaPlan& p) {
  using C = Compute<T>;
  ScratchScope scratch;
  const T* bias = HasInput(context, kQkvBias) ? context.inputs[kQkvBias].as<T>() : nullptr;
  FusedHeads<C> heads = MakeHeads<C>(context, p, scratch);
  Joined<T> joined[3];
  for (size_t i = 0; i < 3; ++i) {
    const Part<T> part = PartOf<T>(context, p, i);
    const int64_t tokens = i == 0 ? p.S : p.L, size = i == 2 ? p.Dv : p.D;
    C* fresh = scratch.Get<C>(p.B * p.N * tokens * size);
    LoadHeads<T>(part.data, part.source,
                 bias == nullptr ? nullptr : bias + static_cast<int64_t>(i) * p.N * p.D, p.B, p.N,
                 tokens, size, fresh);
    joined[i].fresh = fresh;
    if (i == 0 || (p.past_slots == 0 && !WantsOutput(context, i))) continue;
    const int64_t all = p.B * p.N * p.M * size;
    T* out = WantsOutput(context, i) ? context.outputs[i].as<T>() : scratch.Get<T>(all);
    Join(p, p.past_slots > 0 ? context.inputs[kMhaPastKey + i - 1].as<T>() : nullptr, fresh, size,
         out);
    joined[i].rows = HasInput(context, kBeams) ? OfBeams(context, p, out, size, scratch) : out;
  }
  heads.q = joined[0].fresh;
  KV_RETURN_IF_ERROR(ReadMask(context, kPadding, p, scratch, &heads));
  KV_RETURN_IF_ERROR(ReadAttentionBias<T>(context, kAttentionBias, p.T, scratch, &heads));
  if (WantsOutput(context, 3)) {
    heads.scores = scratch.Get<C>(context.outputs[3].size());
    heads.scores_keys = p.T;
  }
  KV_RETURN_IF_ERROR(Finish<T>(context, joined[1], joined[2], heads, scratch));
  if (heads.scores != nullptr) {
    NarrowArray(heads.scores, context.outputs[3].size(), context.outputs[3].as<T>());
  }
  return absl::OkStatus();
}

absl::Status MhaCompute(KernelContext& context) {
  KV_ASSIGN_OR_RETURN(const MhaPlan plan, PlanMha(context));
  KV_RETURN_IF_ERROR(CheckBeams(context, plan));
  return VisitFloat(context.inputs[0].type, [&](auto tag) {
    return MhaTyped<typename decltype(tag)::Type>(context, plan);
  });
}

// Attention. -------------------------------------------------------------------------------------

enum AttentionInput { kX, kWeights, kProjectionBias, kMaskIndex, kPast, kScoreBias, kLength };

absl::StatusOr<MhaPlan> PlanProjected(const KernelContext& context) {
  KV_RETURN_IF_ERROR(NeedInputs(context, 2));
  if (IntAttribute(context, "past_present_share_buffer", 0) != 0 ||
      IntAttribute(context, "do_rotary", 0) != 0 || HasInput(context, kLength)) {
    return Unsupported(context, "shared buffers and rotation are not supported");
  }
  const Shape& x = context.inputs[kX].shape;
  const Shape& w = context.inputs[kWeights].shape;
  MhaPlan p;
  p.N = IntAttribute(context, "num_heads", 0);
  if (x.size() != 3 || w.size() != 2 || w[0] != x[2] || p.N <= 0 ||
      context.inputs[kWeights].type != context.inputs[kX].type) {
    return Misfit(context, kWeights);
  }
  p.B = x[0];
  p.S = p.L = x[1];
  const move::Ints sizes = move::IntsAttribute(context, "qkv_hidden_sizes");
  const int64_t hidden = sizes.empty() ? w[1] / 3 : sizes[0];
  const int64_t values = sizes.size() < 3 ? hidden : sizes[2];
  if (2 * hidden + values != w[1] || hidden % p.N != 0 || values % p.N != 0 || hidden == 0) {
    return Misfit(context, kWeights);
  }
  p.D = hidden / p.N;
  p.Dv = values / p.N;
  if (HasInput(context, kProjectionBias) &&
      (context.inputs[kProjectionBias].shape != Shape({w[1]}) ||
       context.inputs[kProjectionBias].type != context.inputs[kX].type)) {
    return Misfit(context, kProjectionBias);
  }
  if (HasInput(context, kPast)) {
    const Shape& past = context.inputs[kPast].shape;
    p.P = past.size() == 5 ? past[3] : 0;
    if (past != Shape({2, p.B, p.N, p.P, p.D}) || p.D != p.Dv ||
        context.inputs[kPast].type != context.inputs[kX].type) {
      return Misfit(context, kPast);
    }
  }
  p.T = p.M = p.P + p.L;
  p.past_slots = p.P;
  return p;
}

absl::Status ProjectedShape(KernelContext& context) {
  KV_ASSIGN_OR_RETURN(const MhaPlan p, PlanProjected(context));
  const int32_t type = context.inputs[kX].type;
  SetSpec(context, 0, type, {p.B, p.S, p.N * p.Dv});
  if (context.node.output_size() > 1) {
    if (p.D != p.Dv && !context.node.output(1).empty()) {
      return Invalid(context, "a present needs values of the size of keys");
    }
    SetSpec(context, 1, type, {2, p.B, p.N, p.T, p.D});
  }
  return absl::OkStatus();
}

// Computes the rows [B, S] of X times the weights, rounded to T.
template <typename T>
const T* Project(const KernelContext& context, ScratchScope& scratch) {
  using C = Compute<T>;
  const View& x = context.inputs[kX];
  const View& w = context.inputs[kWeights];
  Product<C> product;
  product.m = x.shape[0] * x.shape[1];
  product.k = product.a_row = w.shape[0];
  product.n = product.b_k = product.c_row = w.shape[1];
  product.a = Wide(x.as<T>(), x.size(), scratch);
  product.b = w.data;
  product.storage = StorageOf<T>();
  product.c = scratch.Get<C>(product.m * product.n);
  Multiply(product, context.threads);
  T* rows = scratch.Get<T>(product.m * product.n);
  if (HasInput(context, kProjectionBias)) {
    const T* bias = context.inputs[kProjectionBias].as<T>();
    for (int64_t i = 0; i < product.m * product.n; ++i) product.c[i] += Widen(bias[i % product.n]);
  }
  NarrowArray(product.c, product.m * product.n, rows);
  return rows;
}

template <typename T>
absl::Status ProjectedTyped(KernelContext& context, const MhaPlan& p) {
  using C = Compute<T>;
  ScratchScope scratch;
  const T* rows = Project<T>(context, scratch);
  const int64_t width = context.inputs[kWeights].shape[1], hidden = p.N * p.D;
  FusedHeads<C> heads = MakeHeads<C>(context, p, scratch);
  Joined<T> joined[3];
  for (int64_t i = 0; i < 3; ++i) {
    const int64_t size = i == 2 ? p.Dv : p.D, all = p.B * p.N * p.T * size;
    C* fresh = scratch.Get<C>(p.B * p.N * p.S * size);
    LoadHeads<T>(rows + i * hidden, {p.S * width, width, size}, nullptr, p.B, p.N, p.S, size,
                 fresh);
    joined[i].fresh = fresh;
    if (i == 0 || (p.P == 0 && !WantsOutput(context, 1))) continue;
    T* out =
        WantsOutput(context, 1) ? context.outputs[1].as<T>() + (i - 1) * all : scratch.Get<T>(all);
    const T* past = p.past_slots > 0
                        ? context.inputs[kPast].as<T>() + (i - 1) * p.B * p.N * p.P * p.D
                        : nullptr;
    Join(p, past, fresh, size, out);
    joined[i].rows = out;
  }
  heads.q = joined[0].fresh;
  KV_RETURN_IF_ERROR(ReadMask(context, kMaskIndex, p, scratch, &heads));
  KV_RETURN_IF_ERROR(ReadAttentionBias<T>(context, kScoreBias, p.T, scratch, &heads));
  return Finish<T>(context, joined[1], joined[2], heads, scratch);
}

absl::Status ProjectedCompute(KernelContext& context) {
  KV_ASSIGN_OR_RETURN(const MhaPlan plan, PlanProjected(context));
  return VisitFloat(context.inputs[0].type, [&](auto tag) {
    return ProjectedTyped<typename decltype(tag)::Type>(context, plan);
  });
}

}  // namespace

absl::Span<const OpDef> MultiHeadOps() {
  static const OpDef ops[] = {
      {"com.microsoft", "Attention", 1, ProjectedShape, ProjectedCompute},
      {"com.microsoft", "MultiHeadAttention", 1, MhaShape, MhaCompute},
  };
  return ops;
}

}  // namespace kvlift::exec
