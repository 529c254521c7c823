// Attention: scaled dot products, soft cap, masks, softmax, weighted sum of values. Sums have the
// canonical order: a score is the chain of MatMul(Q, K^T), a row of probabilities is that of
// Softmax, the output is the chain of MatMul(P, V). Keys that no query of a tile may see are never
// read.
#include "exec/kernels/attention/attention.h"

#include <fmt/format.h>

#include <cmath>
#include <limits>

#include "base/status.h"
#include "exec/kernels/attention/attention_fast.h"
#include "exec/kernels/attention/attention_grouped.h"
#include "exec/kernels/common/math_util.h"
#include "exec/kernels/common/tables.h"
#include "exec/kernels/products/gemm_product.h"

namespace kvlift::exec {
namespace {

using namespace math;  // NOLINT

constexpr int64_t kTileRows = 48;     // queries times heads in one unit of work
constexpr int64_t kValueBlock = 64;   // tokens whose values are used together
constexpr int64_t kStreamedRows = 8;  // up to this many rows, values are read directly, not packed

template <typename T>
void FetchRow(const T* row, int64_t size) {
  for (int64_t i = 0; i < size; i += 64 / static_cast<int64_t>(sizeof(T))) {
    __builtin_prefetch(row + i);
  }
}

void Scale(float* x, int64_t n, float by) { AttentionIsa().scale(x, n, by); }
void Scale(double* x, int64_t n, double by) {
  for (int64_t i = 0; i < n; ++i) x[i] *= by;
}

// Adds a bias to x, and sets x to -inf where the bias is -inf. Returns false if it is -inf
// everywhere.
bool AddBiasRow(const float* bias, int64_t n, float* x) {
  AttentionIsa().add_bias(bias, n, x);
  return HighestScore(bias, n) != -std::numeric_limits<float>::infinity();
}
bool AddBiasRow(const double* bias, int64_t n, double* x) {
  constexpr double kMasked = -std::numeric_limits<double>::infinity();
  bool any = false;
  for (int64_t i = 0; i < n; ++i) {
    any = any || bias[i] != kMasked;
    x[i] = bias[i] == kMasked ? kMasked : x[i] + bias[i];
  }
  return any;
}

// Returns the keys or values of all T tokens: K or V itself, or past and new rows joined in the
// present output or, if that is not wanted, in scratch memory.
template <typename T>
KeyRows Concat(KernelContext& context, const AttentionPlan& p, int input, int past, size_t output,
               int64_t size, const HeadLayout& layout, ScratchScope& scratch) {
  const bool wanted = WantsOutput(context, output);
  const View& fresh = context.inputs[input];
  if (p.P == 0 && !wanted) return {fresh.data, layout};
  T* out = wanted ? context.outputs[output].as<T>() : scratch.Get<T>(p.B * p.Nk * p.T * size);
  const HeadLayout joined = {p.Nk * p.T * size, p.T * size, size};
  const T* old = p.P > 0 ? context.inputs[past].as<T>() : nullptr;
  ParallelFor(context.threads, p.B * p.Nk, 1, std::max<int64_t>(1, (1 << 17) / (p.T * size + 1)),
              [&](int64_t begin, int64_t end) {
                for (int64_t i = begin; i < end; ++i) {
                  T* to = out + i * p.T * size;
                  if (p.P > 0) to = std::copy_n(old + i * p.P * size, p.P * size, to);
                  const T* from = fresh.as<T>() + layout.Offset(i / p.Nk, i % p.Nk, 0);
                  for (int64_t t = 0; t < p.new_keys; ++t) {
                    std::copy_n(from + t * layout.token, size, to + t * size);
                  }
                }
              });
  return {reinterpret_cast<const std::byte*>(out), joined};
}

// T1 is the type of Q, K and Y. All sums are in the compute type C of T1. Only what reads V is
// compiled for its type T2 as well.
template <typename T1>
class AttentionRun {
 public:
  using C = Compute<T1>;

  AttentionRun(KernelContext& context, const AttentionPlan& plan)
      : context_(context), p_(plan), ops_(Vectors<C>()) {}

  absl::Status Run();

 private:
  static constexpr int64_t W = VectorOps<C>::kPanel;
  static constexpr C kMasked = -std::numeric_limits<C>::infinity();

  // Rows (s, h) of one key/value head, with s in [s0, s1) and h in [h0, h1): row (s - s0) * heads +
  // (h - h0).
  struct Unit {
    int64_t b, kv_head, s0, s1, h0, h1;
    int64_t heads() const { return h1 - h0; }
    int64_t rows() const { return (s1 - s0) * heads(); }
  };

  int64_t Valid(int64_t b) const {
    return HasInput(context_, 6) ? context_.inputs[6].as<int64_t>()[b] : p_.T;
  }
  void RunUnit(const Unit& unit);
  void Scores(const Unit& unit, int64_t begin, int64_t end, C* scores, int64_t ld);
  // Writes the mask for keys [begin, end) as a bias.
  void Bias(int64_t b, int64_t h, int64_t s, int64_t begin, int64_t end, C* bias) const;
  // Computes the softmax of x[n] in place.
  void Probabilities(C* x, int64_t n) const;
  void WriteQk(const Unit& unit, int64_t row, const C* x, int64_t base, KeyRange range, C fill,
               C* buffer);
  template <typename T2>
  void Values(const Unit& unit, int64_t begin, int64_t end, const C* p, int64_t ld, C* out);
  bool PackRows(const T1* keys, int64_t n, int64_t next, C* panel) const;
  template <typename T2>
  bool SumRows(const T2* v, int64_t n, const C* p, int64_t ld, int64_t rows, C* out) const;
  template <typename T2>
  void SumSkippingZeros(const T2* v, int64_t n, const C* p, C* out) const;

  KernelContext& context_;
  const AttentionPlan& p_;
  const VectorOps<C>& ops_;
  KeyRows keys_, values_;
};

template <typename T1>
absl::Status AttentionRun<T1>::Run() {
  KV_RETURN_IF_ERROR(CheckValidLengths(context_, p_));
  ScratchScope scratch;
  keys_ = Concat<T1>(context_, p_, 1, 4, 1, p_.D, p_.k, scratch);
  KV_RETURN_IF_ERROR(VisitFloat(context_.inputs[2].type, [&](auto value) {
    using T2 = typename decltype(value)::Type;
    values_ = Concat<T2>(context_, p_, 2, 5, 2, p_.Dv, p_.v, scratch);
    return absl::OkStatus();
  }));
  if (p_.N == 0 || p_.B == 0 || p_.S == 0) return absl::OkStatus();
  if (CanAttendFast(context_, p_)) {
    AttendFast(context_, p_, keys_, values_);
    return absl::OkStatus();
  }

  const int64_t queries = std::min(p_.S, std::max<int64_t>(1, kTileRows / p_.G));
  const int64_t blocks = (p_.S + queries - 1) / queries;
  // If there are fewer key/value heads than threads, the heads of a group are split between units.
  const int64_t units = p_.B * p_.Nk * blocks;
  int64_t splits = 1;
  if (units < context_.threads) splits = std::min(p_.G, (context_.threads + units - 1) / units);
  const int64_t heads = (p_.G + splits - 1) / splits;
  splits = (p_.G + heads - 1) / heads;
  const bool small = p_.B * p_.N * p_.S * p_.T * (p_.D + p_.Dv) < (1 << 16);
  ParallelUnits(small ? 1 : context_.threads, units * splits, [&](int64_t i) {
    Unit unit;
    const int64_t split = i % splits, block = i / splits % blocks, head = i / splits / blocks;
    unit.b = head / p_.Nk;
    unit.kv_head = head % p_.Nk;
    unit.s0 = block * queries;
    unit.s1 = std::min(p_.S, unit.s0 + queries);
    unit.h0 = unit.kv_head * p_.G + split * heads;
    unit.h1 = unit.kv_head * p_.G + std::min(p_.G, (split + 1) * heads);
    RunUnit(unit);
  });
  return absl::OkStatus();
}

template <typename T1>
void AttentionRun<T1>::RunUnit(const Unit& unit) {
  const bool has_valid = HasInput(context_, 6);
  const int64_t valid = Valid(unit.b);
  const bool qk = WantsOutput(context_, 3);
  // All keys that some row sees; every key if the scores themselves are an output.
  KeyRange all = {p_.T, 0};
  for (int64_t s = unit.s0; s < unit.s1; ++s) {
    const KeyRange r = VisibleKeys(p_, s, valid, has_valid);
    if (r.begin == r.end) continue;
    all = {std::min(all.begin, r.begin), std::max(all.end, r.end)};
  }
  if (all.begin >= all.end) all = {0, 0};
  const int64_t visible_end = all.end;
  if (qk && p_.qk_mode < 2) all = {0, p_.T};
  const int64_t base = all.begin / W * W;
  const int64_t width = (all.end - base + W - 1) / W * W;
  // Keeps rows of long contexts in different sets of the processor's cache.
  const int64_t ld = width + 16;

  ScratchScope scratch;
  C* scores = scratch.Get<C>(unit.rows() * ld);
  C* bias = p_.has_mask ? scratch.Get<C>(width) : nullptr;
  C* wide = scratch.Get<C>(qk ? p_.T : 1);
  C* out = scratch.Get<C>(unit.rows() * p_.Dv);
  Scores(unit, base, all.end, scores, ld);
  for (int64_t row = 0; row < unit.rows(); ++row) {
    const int64_t s = unit.s0 + row / unit.heads(), h = unit.h0 + row % unit.heads();
    C* x = scores + row * ld;
    KeyRange r = VisibleKeys(p_, s, valid, has_valid);
    Scale(x, all.end - base, static_cast<C>(p_.scale));
    if (qk && p_.qk_mode == 0) WriteQk(unit, row, x, base, all, kMasked, wide);
    if (p_.softcap != 0) {
      const C cap = static_cast<C>(p_.softcap);
      for (int64_t t = 0; t < all.end - base; ++t) x[t] = std::tanh(x[t] / cap) * cap;
    }
    if (qk && p_.qk_mode == 1) WriteQk(unit, row, x, base, all, kMasked, wide);
    if (r.begin == r.end) r = {base, base};
    std::fill(x, x + (r.begin - base), kMasked);
    bool any = r.end > r.begin;
    if (p_.has_mask && any) {
      Bias(unit.b, h, s, r.begin, r.end, bias);
      any = AddBiasRow(bias, r.end - r.begin, x + r.begin - base);
    }
    if (qk && p_.qk_mode == 2) WriteQk(unit, row, x, base, r, kMasked, wide);
    const int64_t n = any ? r.end - base : 0;
    if (any) Probabilities(x, n);
    std::fill(x + n, x + (all.end - base), C{0});
    if (qk && p_.qk_mode == 3) WriteQk(unit, row, x, base, {base, base + n}, C{0}, wide);
  }
  VisitFloat(context_.inputs[2].type, [&](auto value) {
    using T2 = typename decltype(value)::Type;
    Values<T2>(unit, base, std::max(base, visible_end), scores, ld, out);
    return absl::OkStatus();
  }).IgnoreError();  // Run() has refused other types
  T1* y = context_.outputs[0].template as<T1>();
  for (int64_t row = 0; row < unit.rows(); ++row) {
    const int64_t s = unit.s0 + row / unit.heads(), h = unit.h0 + row % unit.heads();
    NarrowArray(out + row * p_.Dv, p_.Dv, y + p_.y.Offset(unit.b, h, s));
  }
}

template <typename T1>
void AttentionRun<T1>::Scores(const Unit& unit, int64_t begin, int64_t end, C* scores, int64_t ld) {
  const int64_t group = ops_.max_rows, rows = unit.rows();
  ScratchScope scratch;
  C* queries = scratch.Get<C>(rows * p_.D);  // per group of rows: [D][rows of the group]
  C* panel = scratch.Get<C>(W * p_.D);
  C* wide = scratch.Get<C>(kIsSmallFloat<T1> ? W * p_.D : 1);
  const T1* q = context_.inputs[0].template as<T1>();
  for (int64_t i = 0; i < rows; i += group) {
    const int64_t count = std::min(group, rows - i);
    for (int64_t r = 0; r < count; ++r) {
      const int64_t s = unit.s0 + (i + r) / unit.heads(), h = unit.h0 + (i + r) % unit.heads();
      const T1* from = q + p_.q.Offset(unit.b, h, s);
      for (int64_t d = 0; d < p_.D; ++d) queries[i * p_.D + d * count + r] = Widen(from[d]);
    }
  }
  const T1* keys =
      reinterpret_cast<const T1*>(keys_.data) + keys_.layout.Offset(unit.b, unit.kv_head, 0);
  for (int64_t t = begin; t < end; t += W) {
    const int n = static_cast<int>(std::min<int64_t>(W, end - t));
    const T1* block = keys + t * keys_.layout.token;
    const bool packed = PackRows(block, n, std::min<int64_t>(W, end - t - n), panel);
    if (packed) {
      // The keys are packed by a kernel that reads their stored type.
    } else if constexpr (kIsSmallFloat<T1>) {
      for (int j = 0; j < n; ++j) {
        WidenArray(keys + (t + j) * keys_.layout.token, p_.D, wide + j * p_.D);
      }
      ops_.pack_transposed(n, p_.D, wide, p_.D, panel);
    } else {
      ops_.pack_transposed(n, p_.D, keys + t * keys_.layout.token, keys_.layout.token, panel);
    }
    for (int64_t i = 0; i < rows; i += group) {
      const int64_t count = std::min(group, rows - i);
      ops_.tile(static_cast<int>(count), n, p_.D, queries + i * p_.D, 1, count, panel, W,
                scores + i * ld + t - begin, ld, false);
    }
  }
}

template <typename T1>
void AttentionRun<T1>::Bias(int64_t b, int64_t h, int64_t s, int64_t begin, int64_t end,
                            C* bias) const {
  const View& mask = context_.inputs[3];
  const int64_t offset = b * p_.mask_b + h * p_.mask_h + s * p_.mask_s;
  const int64_t step = p_.mask_t;
  if (mask.type == onnx::TensorProto::BOOL) {
    const uint8_t* m = mask.as<uint8_t>() + offset;
    if constexpr (std::is_same_v<C, float>) {
      if (step == 1) {
        std::fill(bias, bias + (end - begin), C{0});
        return AttentionIsa().keep(m + begin, end - begin, bias);
      }
    }
    for (int64_t t = begin; t < end; ++t) bias[t - begin] = m[t * step] != 0 ? C{0} : kMasked;
  } else if (mask.type == context_.inputs[0].type && step == 1) {
    WidenArray(mask.as<T1>() + offset + begin, end - begin, bias);
  } else {
    for (int64_t t = begin; t < end; ++t) {
      bias[t - begin] = static_cast<C>(ElementAsDouble(mask, offset + t * step));
    }
  }
}

// Computes the softmax of x[0, n) with elements rounded to type T.
template <typename T, typename C>
void SoftmaxIn(C* x, int64_t n) {
  using W = Compute<T>;
  ScratchScope scratch;
  W* wide = scratch.Get<W>(n);
  for (int64_t i = 0; i < n; ++i) wide[i] = Widen(Narrow<T>(static_cast<W>(x[i])));
  const VectorOps<W>& ops = Vectors<W>();
  const W sum = ops.exp_sum(wide, n, ops.max(wide, n), wide);
  ops.divide(wide, n, sum, wide);
  for (int64_t i = 0; i < n; ++i) x[i] = static_cast<C>(Widen(Narrow<T>(wide[i])));
}

template <typename T1>
void AttentionRun<T1>::Probabilities(C* x, int64_t n) const {
  switch (p_.softmax_type) {
    case onnx::TensorProto::DOUBLE:
      return SoftmaxIn<double>(x, n);
    case onnx::TensorProto::FLOAT16:
      return SoftmaxIn<Half>(x, n);
    case onnx::TensorProto::BFLOAT16:
      return SoftmaxIn<Bfloat>(x, n);
    case onnx::TensorProto::FLOAT:
      return SoftmaxIn<float>(x, n);
    default:
      break;
  }
  const C sum = ops_.exp_sum(x, n, ops_.max(x, n), x);
  ops_.divide(x, n, sum, x);
}

// Writes row `row` of output qk_matmul_output. x has the values of keys from `base` on; keys
// outside of `range` get `fill`.
template <typename T1>
void AttentionRun<T1>::WriteQk(const Unit& unit, int64_t row, const C* x, int64_t base,
                               KeyRange range, C fill, C* buffer) {
  const int64_t s = unit.s0 + row / unit.heads(), h = unit.h0 + row % unit.heads();
  for (int64_t t = 0; t < p_.T; ++t) {
    buffer[t] = t >= range.begin && t < range.end ? x[t - base] : fill;
  }
  T1* out = context_.outputs[3].template as<T1>();
  NarrowArray(buffer, p_.T, out + ((unit.b * p_.N + h) * p_.S + s) * p_.T);
}

template <typename T1>
template <typename T2>
void AttentionRun<T1>::Values(const Unit& unit, int64_t begin, int64_t end, const C* p, int64_t ld,
                              C* out) {
  const int64_t rows = unit.rows(), group = ops_.max_rows;
  std::fill(out, out + rows * p_.Dv, C{0});
  constexpr bool kDirect = std::is_same_v<T2, C>;
  ScratchScope scratch;
  C* wide = scratch.Get<C>(kDirect ? 1 : kValueBlock * p_.Dv);
  const T2* values =
      reinterpret_cast<const T2*>(values_.data) + values_.layout.Offset(unit.b, unit.kv_head, 0);
  const bool streamed =
      std::is_same_v<C, Compute<T2>> && rows <= kStreamedRows && end > begin &&
      SumRows(values + begin * values_.layout.token, end - begin, p, ld, rows, out);
  for (int64_t t = begin; !streamed && t < end; t += kValueBlock) {
    const int64_t n = std::min(kValueBlock, end - t);
    const C* block = wide;
    int64_t block_ld = p_.Dv;
    if constexpr (kDirect) {
      block = values + t * values_.layout.token;
      block_ld = values_.layout.token;
    } else {
      for (int64_t j = 0; j < n; ++j) {
        const T2* row = values + (t + j) * values_.layout.token;
        if constexpr (std::is_same_v<Compute<T2>, C>) {
          WidenArray(row, p_.Dv, wide + j * p_.Dv);
        } else {
          for (int64_t d = 0; d < p_.Dv; ++d) wide[j * p_.Dv + d] = static_cast<C>(Widen(row[d]));
        }
      }
    }
    for (int64_t i = 0; i < rows; i += group) {
      const int64_t count = std::min(group, rows - i);
      for (int64_t d = 0; d < p_.Dv; d += W) {
        ops_.tile(static_cast<int>(count), static_cast<int>(std::min<int64_t>(W, p_.Dv - d)), n,
                  p + i * ld + t - begin, ld, 1, block + d, block_ld, out + i * p_.Dv + d, p_.Dv,
                  true);
      }
    }
  }
  // A NaN may come from 0 times the arbitrary value of a masked slot.
  for (int64_t row = 0; row < rows; ++row) {
    C* y = out + row * p_.Dv;
    C probe = 0;
    for (int64_t d = 0; d < p_.Dv; ++d) probe += y[d] - y[d];
    if (probe != 0 || probe != probe) {
      SumSkippingZeros(values + begin * values_.layout.token, end - begin, p + row * ld, y);
    }
  }
}

// Transposes n keys to a panel; `next` more follow soon. Returns false if there is no kernel for
// it.
template <typename T1>
bool AttentionRun<T1>::PackRows(const T1* keys, int64_t n, int64_t next, C* panel) const {
  if constexpr (std::is_same_v<C, float>) {
    const auto pack = AttentionIsa().pack_keys;
    if (pack == nullptr || p_.D % 16 != 0) return false;
    const int64_t token = keys_.layout.token;
    for (int64_t j = n; j < n + next; ++j) FetchRow(keys + j * token, p_.D);
    pack({keys, StorageOf<T1>(), token, n, p_.D}, panel);
    return true;
  }
  return false;
}

// Computes the sums of Values for few rows, reading values row by row. Returns false if there is no
// kernel for it.
template <typename T1>
template <typename T2>
bool AttentionRun<T1>::SumRows(const T2* v, int64_t n, const C* p, int64_t ld, int64_t rows,
                               C* out) const {
  if constexpr (std::is_same_v<C, float>) {
    if (p_.Dv % 16 != 0) return false;
    AttentionIsa().values({v, StorageOf<T2>(), values_.layout.token, n, p_.Dv}, p, ld, rows, out);
    return true;
  }
  return false;
}

// Computes the sum of Values without the keys of probability 0.
template <typename T1>
template <typename T2>
void AttentionRun<T1>::SumSkippingZeros(const T2* v, int64_t n, const C* p, C* out) const {
  ScratchScope scratch;
  C* row = scratch.Get<C>(p_.Dv);
  std::fill(out, out + p_.Dv, C{0});
  for (int64_t t = 0; t < n; ++t) {
    if (p[t] == 0) continue;
    for (int64_t d = 0; d < p_.Dv; ++d) {
      row[d] = static_cast<C>(Widen(v[t * values_.layout.token + d]));
    }
    for (int64_t d = 0; d < p_.Dv; d += W) {
      ops_.tile(1, static_cast<int>(std::min<int64_t>(W, p_.Dv - d)), 1, p + t, 1, 1, row + d,
                p_.Dv, out + d, p_.Dv, true);
    }
  }
}

absl::Status AttentionCompute(KernelContext& context) {
  KV_ASSIGN_OR_RETURN(const AttentionPlan plan, PlanAttention(context));
  return VisitFloat(context.inputs[0].type, [&](auto query) {
    return AttentionRun<typename decltype(query)::Type>(context, plan).Run();
  });
}

}  // namespace

absl::Span<const OpDef> AttentionOps() {
  static const OpDef ops[] = {
      {.domain = "",
       .op_type = "Attention",
       .since_version = 23,
       .shape = AttentionShape,
       .compute = AttentionCompute,
       .pitched_inputs = 1 << 1 | 1 << 2},
  };
  return ops;
}

}  // namespace kvlift::exec
