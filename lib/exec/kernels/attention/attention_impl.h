// The loops of attention_isa.h written on Vec. Included by the attention_*.cc files, each of which
// is compiled for one instruction set.
#pragma once

#include "exec/kernels/attention/attention_int8.h"
#include "exec/kernels/attention/attention_isa.h"
#include "exec/kernels/attention/attention_lanes.h"
#include "exec/kernels/attention/attention_pack.h"

namespace kvlift::exec {
namespace {

// Rows of keys that stay in the first-level cache while heads take turns, and rows of values, where
// more rows pay off if elements are wide.
constexpr int kTileTokens = 32;
template <typename Row>
constexpr int kValueTile = sizeof(typename Row::Element) == 4 ? 64 : 32;

// Returns the distance in bytes from row t to the row that is prefetched meanwhile, about
// kBytesAhead further on, in this block or in the next one. 0: there is no such row. Several heads
// take longer over a row than the hardware prefetcher looks ahead.
inline int64_t Ahead(const RowBlock& block, int64_t t) {
  constexpr int64_t kBytesAhead = 8192, kFewest = 4;
  const int64_t row = block.stride * (block.storage == Storage::kNative ? 4 : 2);
  const int64_t fit = kBytesAhead / row;
  const int64_t rows = fit < kFewest ? kFewest : fit > kRowsAhead ? kRowsAhead : fit;
  if (t + rows < block.rows) return rows * row;
  if (block.next == nullptr) return 0;
  return static_cast<const char*>(block.next) - static_cast<const char*>(block.data) +
         (rows - block.rows) * row;
}
template <typename Element>
void Prefetch(const Element* row, int64_t ahead, int64_t size) {
#if defined(KV_AVX2)
  const char* from = reinterpret_cast<const char*>(row) + ahead;
  for (int64_t i = 0; i < size * static_cast<int64_t>(sizeof(Element)); i += 64) {
    _mm_prefetch(from + i, _MM_HINT_T0);
  }
#else
  (void)row, (void)ahead, (void)size;
#endif
}

// Computes the scores of rows [0, n) for H heads, n <= BlockTokens(H). C is the number of vectors
// in a row; 0: known at run time only.
template <typename Row, int H, int C>
void ScoreBlock(const typename Row::Element* keys, int64_t stride, int64_t ahead, int n,
                int64_t vectors, const float* queries, float* scores, int64_t ld) {
  constexpr int kTokens = BlockTokens(H);
  const int64_t count = C > 0 ? C : vectors, width = count * 16;
  Partial sums[16];
  for (int i = H * kTokens; i < 16; ++i) sums[SumOrder(i)] = Fold(V16::Set(0));
  // Rows that share one load of the queries. With few heads it is faster to read one row at a time.
  constexpr int kStep = H > 2 ? 2 : 1;
  const auto step = [&](int first) __attribute__((always_inline)) {
    const typename Row::Element* row[kStep];
    V16 acc[kStep][H];
#pragma GCC unroll 2
    for (int i = 0; i < kStep; ++i) {
      const int t = first + i;
      row[i] = keys + (t < n ? t : n - 1) * stride;
      if (H > 1 && ahead != 0) Prefetch(row[i], ahead, width);
#pragma GCC unroll 4
      for (int h = 0; h < H; ++h) acc[i][h] = V16::Set(0);
    }
#pragma GCC unroll 8
    for (int64_t c = 0; c < count; ++c) {
      V16 k[kStep];
#pragma GCC unroll 2
      for (int i = 0; i < kStep; ++i) k[i] = Row::Load(row[i] + c * 16);
#pragma GCC unroll 4
      for (int h = 0; h < H; ++h) {
        const V16 q = V16::Load(queries + h * width + c * 16);
#pragma GCC unroll 2
        for (int i = 0; i < kStep; ++i) acc[i][h] = V16::Fma(k[i], q, acc[i][h]);
      }
    }
#pragma GCC unroll 2
    for (int i = 0; i < kStep; ++i) {
#pragma GCC unroll 4
      for (int h = 0; h < H; ++h) sums[SumOrder(h * kTokens + first + i)] = Fold(acc[i][h]);
    }
  };
  if constexpr (kTokens == 4 && C > 0 && C <= 8) {  // the sums stay in registers
    step(0);
    step(2);
  } else {
#pragma GCC unroll 1
    for (int t = 0; t < kTokens; t += kStep) step(t);
  }
  float out[16];
  SumLanes(sums, out);
  if (n == kTokens) {
    for (int h = 0; h < H; ++h) std::memcpy(scores + h * ld, out + h * kTokens, kTokens * 4);
  } else {
    for (int h = 0; h < H; ++h) {
      for (int t = 0; t < n; ++t) scores[h * ld + t] = out[h * kTokens + t];
    }
  }
}

template <typename Row, int H>
void ScoreRows(const RowBlock& keys, int64_t first, int n, int64_t ahead, const float* queries,
               float* scores, int64_t ld) {
  const auto* data = static_cast<const typename Row::Element*>(keys.data);
  constexpr int kTokens = BlockTokens(H);
  const int64_t vectors = keys.size / 16;
  for (int t = 0; t < n; t += kTokens) {
    const auto* rows = data + (first + t) * keys.stride;
    const int count = n - t < kTokens ? n - t : kTokens;
    float* to = scores + first + t;
    if (kForSizes && vectors == 8) {
      ScoreBlock<Row, H, kForSizes ? 8 : 0>(rows, keys.stride, ahead, count, 8, queries, to, ld);
    } else if (kForSizes && vectors == 4) {
      ScoreBlock<Row, H, kForSizes ? 4 : 0>(rows, keys.stride, ahead, count, 4, queries, to, ld);
    } else {
      ScoreBlock<Row, H, 0>(rows, keys.stride, ahead, count, vectors, queries, to, ld);
    }
  }
}

template <typename Row>
void ScoresAs(const RowBlock& keys, const float* queries, int64_t heads, float* scores,
              int64_t ld) {
  const int64_t passes = (heads + 3) / 4;
  for (int64_t t = 0; t < keys.rows; t += kTileTokens) {
    const int n = static_cast<int>(keys.rows - t < kTileTokens ? keys.rows - t : kTileTokens);
    int64_t h = 0;
    for (int64_t pass = 0; pass < passes; ++pass) {
      const int64_t end = heads * (pass + 1) / passes, ahead = h == 0 ? Ahead(keys, t) : 0;
      const float* q = queries + h * keys.size;
      float* to = scores + h * ld;
      switch (end - h) {
        case 1:
          ScoreRows<Row, 1>(keys, t, n, ahead, q, to, ld);
          break;
        case 2:
          ScoreRows<Row, 2>(keys, t, n, ahead, q, to, ld);
          break;
        case 3:
          ScoreRows<Row, 3>(keys, t, n, ahead, q, to, ld);
          break;
        default:
          ScoreRows<Row, 4>(keys, t, n, ahead, q, to, ld);
      }
      h = end;
    }
  }
}

inline void Scores(const RowBlock& keys, const float* queries, int64_t heads, float* scores,
                   int64_t ld) {
  if (keys.scales != nullptr) return Int8Scores(keys, queries, heads, scores, ld);
  switch (keys.storage) {
    case Storage::kHalf:
      return ScoresAs<HalfRow>(keys, queries, heads, scores, ld);
    case Storage::kBfloat:
      return ScoresAs<BfloatRow>(keys, queries, heads, scores, ld);
    default:
      return ScoresAs<NativeRow>(keys, queries, heads, scores, ld);
  }
}

// Adds C vectors of n rows to H heads.
template <typename Row, int H, int C>
void ValueBlock(const typename Row::Element* values, int64_t stride, int64_t ahead, int64_t fetch,
                int n, const float* weights, int64_t ld, float* out, int64_t out_ld) {
  V16 acc[H][C];
  for (int h = 0; h < H; ++h) {
    for (int c = 0; c < C; ++c) acc[h][c] = V16::Load(out + h * out_ld + c * 16);
  }
  for (int t = 0; t < n; ++t) {
    if (ahead != 0) Prefetch(values, ahead, fetch);
    V16 w[H];
#pragma GCC unroll 4
    for (int h = 0; h < H; ++h) w[h] = V16::Set(weights[h * ld + t]);
#pragma GCC unroll 8
    for (int c = 0; c < C; ++c) {
      const V16 v = Row::Load(values + c * 16);
#pragma GCC unroll 4
      for (int h = 0; h < H; ++h) acc[h][c] = V16::Fma(w[h], v, acc[h][c]);
    }
    values += stride;
  }
  for (int h = 0; h < H; ++h) {
    for (int c = 0; c < C; ++c) acc[h][c].Store(out + h * out_ld + c * 16);
  }
}

// Adds C vectors of n rows to all heads, in passes.
template <typename Row, int C>
void ValueHeads(const typename Row::Element* values, int64_t stride, int64_t ahead, int n,
                const float* weights, int64_t ld, int64_t heads, float* out, int64_t out_ld) {
  constexpr int kFit = kMaxAccumulators / C, kMost = kFit < 1 ? 1 : kFit > 4 ? 4 : kFit;
  const int64_t passes = (heads + kMost - 1) / kMost;
  // Every pass prefetches its share of the next rows.
  const int64_t fetch = (C * 16 + passes - 1) / passes;
  int64_t h = 0;
  for (int64_t pass = 0; pass < passes; ++pass) {
    const int64_t end = heads * (pass + 1) / passes;
    const int64_t next =
        ahead == 0 ? 0 : ahead + pass * fetch * static_cast<int64_t>(sizeof(*values));
    const float* w = weights + h * ld;
    float* to = out + h * out_ld;
    if (kMost >= 4 && end - h == 4) {
      ValueBlock<Row, kMost >= 4 ? 4 : 1, C>(values, stride, next, fetch, n, w, ld, to, out_ld);
    } else if (kMost >= 3 && end - h == 3) {
      ValueBlock<Row, kMost >= 3 ? 3 : 1, C>(values, stride, next, fetch, n, w, ld, to, out_ld);
    } else if (kMost >= 2 && end - h == 2) {
      ValueBlock<Row, kMost >= 2 ? 2 : 1, C>(values, stride, next, fetch, n, w, ld, to, out_ld);
    } else {
      ValueBlock<Row, 1, C>(values, stride, next, fetch, n, w, ld, to, out_ld);
    }
    h = end;
  }
}

template <typename Row>
void ValuesAs(const RowBlock& values, const float* weights, int64_t ld, int64_t heads, float* out) {
  const auto* data = static_cast<const typename Row::Element*>(values.data);
  const int64_t stride = values.stride, size = values.size;
  constexpr int kTile = kValueTile<Row>;
  for (int64_t t = 0; t < values.rows; t += kTile) {
    const int n = static_cast<int>(values.rows - t < kTile ? values.rows - t : kTile);
    const typename Row::Element* rows = data + t * stride;
    const float* w = weights + t;
    const int64_t ahead = heads > 1 ? Ahead(values, t) : 0;
    int64_t d = 0;
    if constexpr (kMaxAccumulators >= 16) {
      for (; d + 128 <= size; d += 128) {
        ValueHeads<Row, 8>(rows + d, stride, ahead, n, w, ld, heads, out + d, size);
      }
    }
    if constexpr (kForSizes) {
      for (; d + 64 <= size; d += 64) {
        ValueHeads<Row, 4>(rows + d, stride, ahead, n, w, ld, heads, out + d, size);
      }
      for (; d + 32 <= size; d += 32) {
        ValueHeads<Row, 2>(rows + d, stride, ahead, n, w, ld, heads, out + d, size);
      }
    }
    for (; d < size; d += 16) {
      ValueHeads<Row, 1>(rows + d, stride, ahead, n, w, ld, heads, out + d, size);
    }
  }
}

inline void ValueSums(const RowBlock& values, const float* weights, int64_t ld, int64_t heads,
                      float* out) {
  if (values.scales != nullptr) return Int8ValueSums(values, weights, ld, heads, out);
  switch (values.storage) {
    case Storage::kHalf:
      return ValuesAs<HalfRow>(values, weights, ld, heads, out);
    case Storage::kBfloat:
      return ValuesAs<BfloatRow>(values, weights, ld, heads, out);
    default:
      return ValuesAs<NativeRow>(values, weights, ld, heads, out);
  }
}

inline float Highest(const float* x, int64_t n) {
  constexpr float kLowest = -std::numeric_limits<float>::infinity();
  V16 best[4];
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) best[i] = V16::Set(kLowest);
  int64_t i = 0;
  for (; i + 64 <= n; i += 64) {
#pragma GCC unroll 4
    for (int k = 0; k < 4; ++k) best[k] = V16::Max(V16::Load(x + i + 16 * k), best[k]);
  }
  for (; i < n; i += 16) {
    const int rest = n - i < 16 ? static_cast<int>(n - i) : 16;
    best[0] = V16::Max(rest == 16 ? V16::Load(x + i) : V16::LoadN(x + i, rest, kLowest), best[0]);
  }
  const V16 all = V16::Max(V16::Max(best[0], best[1]), V16::Max(best[2], best[3]));
#if defined(__AVX512F__) && defined(KV_AVX2)
  return _mm512_reduce_max_ps(all.v);
#else
  float t[16];
  all.Store(t);
  float result = kLowest;
  for (float e : t) result = e > result ? e : result;
  return result;
#endif
}

inline bool HasOdd(const float* x, int64_t n) {
  int64_t i = 0;
#if defined(__AVX512F__) && defined(KV_AVX2)
  constexpr int kInfiniteOrNaN = 0x99;
  __mmask16 odd = 0;
  for (; i + 16 <= n; i += 16)
    odd |= _mm512_fpclass_ps_mask(_mm512_loadu_ps(x + i), kInfiniteOrNaN);
  if (odd != 0) return true;
#elif defined(KV_AVX2)
  __m256 odd = _mm256_setzero_ps();
  for (; i + 8 <= n; i += 8) {  // x - x is NaN for these elements
    const __m256 v = _mm256_loadu_ps(x + i), zero = _mm256_sub_ps(v, v);
    odd = _mm256_or_ps(odd, _mm256_cmp_ps(zero, zero, _CMP_UNORD_Q));
  }
  if (_mm256_movemask_ps(odd) != 0) return true;
#endif
  for (; i < n; ++i) {
    if (!(x[i] - x[i] == 0)) return true;
  }
  return false;
}

template <typename F>
void ForVectors(int64_t n, F f) {
  int64_t i = 0;
  for (; i + 16 <= n; i += 16) f(i, 16);
  if (i < n) f(i, static_cast<int>(n - i));
}
inline V16 LoadSome(const float* x, int n) { return n == 16 ? V16::Load(x) : V16::LoadN(x, n); }
inline void StoreSome(V16 v, float* x, int n) {
  if (n == 16) {
    v.Store(x);
  } else {
    v.StoreN(x, n);
  }
}

// Returns the lanes of `below` where x < limit, else (and where x is NaN) those of `others`.
inline V16 SelectBelow(V16 x, float limit, V16 below, V16 others) {
#if defined(__AVX512F__) && defined(KV_AVX2)
  const __mmask16 mask = _mm512_cmp_ps_mask(x.v, _mm512_set1_ps(limit), _CMP_LT_OQ);
  return {_mm512_mask_mov_ps(others.v, mask, below.v)};
#elif defined(KV_AVX2)
  const __m256 l = _mm256_set1_ps(limit);
  return {_mm256_blendv_ps(others.a, below.a, _mm256_cmp_ps(x.a, l, _CMP_LT_OQ)),
          _mm256_blendv_ps(others.b, below.b, _mm256_cmp_ps(x.b, l, _CMP_LT_OQ))};
#else
  return V16::Make([&](int i) { return x.Lane(i) < limit ? below.Lane(i) : others.Lane(i); });
#endif
}

// Computes 1 - 2 / (1 + exp(2 |x|)) with the sign of x, and near 0, where that cancels, the power
// series.
inline V16 Tanh(V16 x) {
  const V16 zero = V16::Set(0), one = V16::Set(1), size = V16::Max(x, zero - x);
  const V16 far = one - V16::Set(2) / (one + Exp(size + size)), square = x * x;
  V16 series = V16::Set(-1382.0f / 155925);
  for (float c : {62.0f / 2835, -17.0f / 315, 2.0f / 15, -1.0f / 3}) {
    series = V16::Fma(series, square, V16::Set(c));
  }
  const V16 near = V16::Fma(series * square, x, x);
  return SelectBelow(size, 0.3f, near, SelectBelow(x, 0, zero - far, far));
}

inline void SoftCapAll(float* x, int64_t n, float cap) {
  const V16 limit = V16::Set(cap);
  ForVectors(
      n, [&](int64_t i, int k) { StoreSome(Tanh(LoadSome(x + i, k) / limit) * limit, x + i, k); });
}

inline void ScaleAll(float* x, int64_t n, float by) {
  const V16 factor = V16::Set(by);
  ForVectors(n, [&](int64_t i, int k) { StoreSome(LoadSome(x + i, k) * factor, x + i, k); });
}
inline void AddScaledAll(const float* x, int64_t n, float by, float* y) {
  const V16 factor = V16::Set(by);
  ForVectors(n, [&](int64_t i, int k) {
    StoreSome(V16::Fma(LoadSome(x + i, k), factor, LoadSome(y + i, k)), y + i, k);
  });
}

// Lanes are selected, not added, so that a NaN in the score of a masked key vanishes.
inline void AddBias(const float* bias, int64_t n, float* x) {
  constexpr float kMasked = -std::numeric_limits<float>::infinity();
  int64_t i = 0;
#if defined(__AVX512F__) && defined(KV_AVX2)
  for (; i + 16 <= n; i += 16) {
    const __m512 b = _mm512_loadu_ps(bias + i), sum = _mm512_add_ps(b, _mm512_loadu_ps(x + i));
    const __mmask16 masked = _mm512_cmp_ps_mask(b, _mm512_set1_ps(kMasked), _CMP_EQ_OQ);
    _mm512_storeu_ps(x + i, _mm512_mask_mov_ps(sum, masked, b));
  }
#elif defined(KV_AVX2)
  for (; i + 8 <= n; i += 8) {
    const __m256 b = _mm256_loadu_ps(bias + i), sum = _mm256_add_ps(b, _mm256_loadu_ps(x + i));
    const __m256 masked = _mm256_cmp_ps(b, _mm256_set1_ps(kMasked), _CMP_EQ_OQ);
    _mm256_storeu_ps(x + i, _mm256_blendv_ps(sum, b, masked));
  }
#endif
  for (; i < n; ++i) x[i] = bias[i] == kMasked ? kMasked : x[i] + bias[i];
}
inline void Keep(const uint8_t* keep, int64_t n, float* x) {
  constexpr float kMasked = -std::numeric_limits<float>::infinity();
  int64_t i = 0;
#if defined(__AVX512F__) && defined(KV_AVX2)
  for (; i + 16 <= n; i += 16) {
    const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(keep + i));
    const __mmask16 masked = _mm_cmpeq_epi8_mask(bytes, _mm_setzero_si128());
    _mm512_mask_storeu_ps(x + i, masked, _mm512_set1_ps(kMasked));
  }
#elif defined(KV_AVX2)
  for (; i + 8 <= n; i += 8) {
    const __m128i bytes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(keep + i));
    const __m256i masked = _mm256_cmpeq_epi32(_mm256_cvtepu8_epi32(bytes), _mm256_setzero_si256());
    _mm256_storeu_ps(x + i, _mm256_blendv_ps(_mm256_loadu_ps(x + i), _mm256_set1_ps(kMasked),
                                             _mm256_castsi256_ps(masked)));
  }
#endif
  for (; i < n; ++i) x[i] = keep[i] != 0 ? x[i] : kMasked;
}

constexpr AttentionKernels MakeAttentionKernels() {
  return {Scores,     ValueSums, kPackKeys,    PackValues, Highest, HasOdd,
          SoftCapAll, ScaleAll,  AddScaledAll, AddBias,    Keep};
}

}  // namespace
}  // namespace kvlift::exec
