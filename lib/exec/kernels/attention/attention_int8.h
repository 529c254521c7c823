// Scores and value sums over int8 rows with a scale per group of elements. Included by the
// attention_*.cc files. An element is value * scale, rounded to float, and sums run in the order of
// rows of floats: the bits are those of rows that were dequantised before.
#pragma once

#include "exec/kernels/attention/attention_lanes.h"
#include "exec/kernels/attention/attention_pack.h"

namespace kvlift::exec {
namespace {

inline V16 LoadInt8(const int8_t* p) {
#if defined(__AVX512F__) && defined(KV_AVX2)
  const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  return {_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(bytes))};
#elif defined(KV_AVX2)
  const __m128i low = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(p));
  const __m128i high = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(p + 8));
  return {_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(low)),
          _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(high))};
#else
  return V16::Make([&](int i) { return static_cast<float>(p[i]); });
#endif
}

// Returns the distance in bytes from row t to the row that is prefetched meanwhile, about
// kAheadBytes further on, in this block or in the next one. 0: there is no such row.
inline int64_t Int8Ahead(const RowBlock& block, int64_t t) {
  constexpr int64_t kAheadBytes = 4096;
  const int64_t rows = block.stride >= kAheadBytes ? 1 : kAheadBytes / block.stride;
  if (t + rows < block.rows) return rows * block.stride;
  if (block.next == nullptr || rows > kRowsAhead) return 0;
  return static_cast<const char*>(block.next) - static_cast<const char*>(block.data) +
         (rows - block.rows) * block.stride;
}
inline void FetchInt8(const RowBlock& block, int64_t t, int64_t ahead) {
  if (ahead == 0) return;
  const char* row = static_cast<const char*>(block.data) + t * block.stride + ahead;
  for (int64_t i = 0; i < block.size; i += 64) FetchLine(row + i);
  const int64_t rows = ahead / block.stride;
  if (rows > 0 && t + rows < block.rows) {
    FetchLine(block.scales + (t + rows) * block.scale_stride);
  }
}

// C is the number of vectors in a row, P in a group; 0: known at run time only.
template <int H, int C, int P>
void Int8ScoreBlock(const RowBlock& keys, int64_t first, int n, int64_t ahead, const float* queries,
                    float* scores, int64_t ld) {
  constexpr int kTokens = BlockTokens(H);
  const auto* data = static_cast<const int8_t*>(keys.data);
  const int64_t count = C > 0 ? C : keys.size / 16, width = count * 16;
  const int64_t per = P > 0 ? P : keys.group / 16;
  Partial sums[16];
  for (int i = H * kTokens; i < 16; ++i) sums[SumOrder(i)] = Fold(V16::Set(0));
#pragma GCC unroll 1
  for (int t = 0; t < kTokens; ++t) {
    const int64_t at = first + (t < n ? t : n - 1);
    const int8_t* row = data + at * keys.stride;
    FetchInt8(keys, at, ahead);
    const float* scale = keys.scales + at * keys.scale_stride;
    V16 acc[H];
#pragma GCC unroll 4
    for (int h = 0; h < H; ++h) acc[h] = V16::Set(0);
#pragma GCC unroll 8
    for (int64_t c = 0; c < count; c += per, ++scale) {
      const V16 s = V16::Set(*scale);
#pragma GCC unroll 4
      for (int64_t i = c; i < c + per; ++i) {
        const V16 k = LoadInt8(row + i * 16) * s;
#pragma GCC unroll 4
        for (int h = 0; h < H; ++h) {
          acc[h] = V16::Fma(k, V16::Load(queries + h * width + i * 16), acc[h]);
        }
      }
    }
#pragma GCC unroll 4
    for (int h = 0; h < H; ++h) sums[SumOrder(h * kTokens + t)] = Fold(acc[h]);
  }
  float out[16];
  SumLanes(sums, out);
  for (int h = 0; h < H; ++h) {
    for (int t = 0; t < n; ++t) scores[h * ld + first + t] = out[h * kTokens + t];
  }
}

template <int H>
void Int8ScoreRows(const RowBlock& keys, bool first_pass, const float* queries, float* scores,
                   int64_t ld) {
  constexpr int kTokens = BlockTokens(H);
  for (int64_t t = 0; t < keys.rows; t += kTokens) {
    const int n = static_cast<int>(keys.rows - t < kTokens ? keys.rows - t : kTokens);
    const int64_t ahead = first_pass ? Int8Ahead(keys, t) : 0;
    if (keys.size == 128 && keys.group == 32) {
      Int8ScoreBlock<H, 8, 2>(keys, t, n, ahead, queries, scores, ld);
    } else if (keys.size == 64 && keys.group == 32) {
      Int8ScoreBlock<H, 4, 2>(keys, t, n, ahead, queries, scores, ld);
    } else {
      Int8ScoreBlock<H, 0, 0>(keys, t, n, ahead, queries, scores, ld);
    }
  }
}

inline void Int8Scores(const RowBlock& keys, const float* queries, int64_t heads, float* scores,
                       int64_t ld) {
  for (int64_t h = 0; h < heads;) {
    const float* q = queries + h * keys.size;
    float* to = scores + h * ld;
    if (heads - h >= 4) {
      Int8ScoreRows<4>(keys, h == 0, q, to, ld);
      h += 4;
    } else if (heads - h >= 2) {
      Int8ScoreRows<2>(keys, h == 0, q, to, ld);
      h += 2;
    } else {
      Int8ScoreRows<1>(keys, h == 0, q, to, ld);
      h += 1;
    }
  }
}

// Adds C vectors from element d on, of rows [t0, t1), to H heads.
template <int H, int C>
void Int8ValueBlock(const RowBlock& values, int64_t t0, int64_t t1, int64_t d, int64_t ahead,
                    const float* weights, int64_t ld, float* out) {
  const int8_t* row = static_cast<const int8_t*>(values.data) + t0 * values.stride + d;
  const float* scale = values.scales + t0 * values.scale_stride;
  int64_t group[C];
#pragma GCC unroll 8
  for (int c = 0; c < C; ++c) group[c] = (d + c * 16) / values.group;
  V16 acc[H][C];
#pragma GCC unroll 4
  for (int h = 0; h < H; ++h) {
#pragma GCC unroll 8
    for (int c = 0; c < C; ++c) acc[h][c] = V16::Load(out + h * values.size + d + c * 16);
  }
  for (int64_t t = t0; t < t1; ++t) {
    FetchInt8(values, t, ahead);
    V16 w[H];
#pragma GCC unroll 4
    for (int h = 0; h < H; ++h) w[h] = V16::Set(weights[h * ld + t]);
#pragma GCC unroll 8
    for (int c = 0; c < C; ++c) {
      const V16 v = LoadInt8(row + c * 16) * V16::Set(scale[group[c]]);
#pragma GCC unroll 4
      for (int h = 0; h < H; ++h) acc[h][c] = V16::Fma(w[h], v, acc[h][c]);
    }
    row += values.stride;
    scale += values.scale_stride;
  }
#pragma GCC unroll 4
  for (int h = 0; h < H; ++h) {
#pragma GCC unroll 8
    for (int c = 0; c < C; ++c) acc[h][c].Store(out + h * values.size + d + c * 16);
  }
}

// Adds all elements of rows [t0, t1).
template <int H>
void Int8ValueHeads(const RowBlock& values, int64_t t0, int64_t t1, int64_t ahead,
                    const float* weights, int64_t ld, float* out) {
  constexpr int kFit = kMaxAccumulators / H, kWide = kFit >= 8 ? 8 : kFit >= 4 ? 4 : 2;
  int64_t d = 0;
  for (; d + kWide * 16 <= values.size; d += kWide * 16) {
    Int8ValueBlock<H, kWide>(values, t0, t1, d, d == 0 ? ahead : 0, weights, ld, out);
  }
  for (; d < values.size; d += 16) {
    Int8ValueBlock<H, 1>(values, t0, t1, d, d == 0 ? ahead : 0, weights, ld, out);
  }
}

inline void Int8ValueSums(const RowBlock& values, const float* weights, int64_t ld, int64_t heads,
                          float* out) {
  constexpr int64_t kTile = 64;  // rows that stay in the first-level cache
  for (int64_t t = 0; t < values.rows; t += kTile) {
    const int64_t end = values.rows - t < kTile ? values.rows : t + kTile;
    for (int64_t h = 0; h < heads;) {
      const float* w = weights + h * ld;
      float* to = out + h * values.size;
      const int64_t ahead = h == 0 ? Int8Ahead(values, t) : 0;
      if (heads - h >= 4 && kMaxAccumulators >= 8) {
        Int8ValueHeads<4>(values, t, end, ahead, w, ld, to);
        h += 4;
      } else if (heads - h >= 2) {
        Int8ValueHeads<2>(values, t, end, ahead, w, ld, to);
        h += 2;
      } else {
        Int8ValueHeads<1>(values, t, end, ahead, w, ld, to);
        h += 1;
      }
    }
  }
}

}  // namespace
}  // namespace kvlift::exec
