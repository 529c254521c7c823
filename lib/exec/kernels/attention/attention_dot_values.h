// Value sums of int8 values by byte dot products. Included by attention_vnni.cc. Each weight is
// multiplied by the scale of its row and becomes a 24-bit number with unsigned digits, in units of
// the largest one of its tile and group. The bytes of four rows are interleaved.
#pragma once

#include "exec/kernels/attention/attention_dots.h"

#if defined(__AVX512VNNI__) && defined(KV_AVX2)

namespace kvlift::exec {
namespace {

constexpr int kWeightStride = kDotTile + 16;

// Interleaves a chunk of n rows: bytes[t / 4][d / 16][d % 16][t % 4]; 0 behind the last row.
template <int kBytes>
void InterleaveValues(const int8_t* rows, int64_t stride, int64_t n, uint8_t* bytes) {
  // This order makes words of a row neighbours that are 16 elements apart, so that the lanes of a
  // vector are filled in the order of elements.
  const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
  const auto load = [&](int64_t t) {
    return _mm512_permutexvar_epi32(order, LoadBytes<kBytes>(rows + t * stride));
  };
  const auto put = [&](int64_t t, __m512i a, __m512i b, __m512i c, __m512i d) {
    const __m512i low01 = _mm512_unpacklo_epi8(a, b), high01 = _mm512_unpackhi_epi8(a, b);
    const __m512i low23 = _mm512_unpacklo_epi8(c, d), high23 = _mm512_unpackhi_epi8(c, d);
    uint8_t* to = bytes + t * kChunk;
    _mm512_store_si512(to, _mm512_unpacklo_epi16(low01, low23));
    _mm512_store_si512(to + 64, _mm512_unpackhi_epi16(low01, low23));
    _mm512_store_si512(to + 128, _mm512_unpacklo_epi16(high01, high23));
    _mm512_store_si512(to + 192, _mm512_unpackhi_epi16(high01, high23));
  };
  int64_t t = 0;
  for (; t + 4 <= n; t += 4) put(t, load(t), load(t + 1), load(t + 2), load(t + 3));
  if (t < n) {
    const __m512i none = _mm512_setzero_si512();
    put(t, load(t), t + 1 < n ? load(t + 1) : none, t + 2 < n ? load(t + 2) : none, none);
  }
}

// Returns the largest elements of four vectors, in four neighbouring lanes.
inline __m128 Largest(const __m512 (&x)[4]) {
  const __m512 ab = _mm512_max_ps(_mm512_unpacklo_ps(x[0], x[1]), _mm512_unpackhi_ps(x[0], x[1]));
  const __m512 cd = _mm512_max_ps(_mm512_unpacklo_ps(x[2], x[3]), _mm512_unpackhi_ps(x[2], x[3]));
  const __m512 all =
      _mm512_max_ps(_mm512_shuffle_ps(ab, cd, 0x44), _mm512_shuffle_ps(ab, cd, 0xEE));
  const __m512 half = _mm512_max_ps(all, _mm512_shuffle_f32x4(all, all, 0x4E));
  return _mm512_castps512_ps128(_mm512_max_ps(half, _mm512_shuffle_f32x4(half, half, 0xB1)));
}

// Writes the digits of weights[h * ld + t] * scales[t] in units[h], for h < H and t < n. The digits
// up to the next multiple of 16 are 0.
template <int H>
void SetWeights(const float* weights, int64_t ld, const float* scales, int64_t n,
                int32_t (*digits)[kWeightStride], float* units) {
  constexpr float kMostUnits = 0xFFFFF0;  // stays below 2^24 after rounding
  const auto product = [&](int h, int64_t t) {
    const float* from = weights + h * ld + t;
    const __m512 w =
        n - t >= 16 ? _mm512_loadu_ps(from) : _mm512_maskz_loadu_ps(FirstLanes(n - t), from);
    return _mm512_mul_ps(w, _mm512_load_ps(scales + t));
  };
  __m512 most[4] = {};
  for (int64_t t = 0; t < n; t += 16) {
#pragma GCC unroll 4
    for (int h = 0; h < H; ++h) most[h] = _mm512_max_ps(most[h], product(h, t));
  }
  const __m128 range = _mm_max_ps(Largest(most), _mm_set1_ps(kLeastSize));
  _mm_storeu_ps(units, _mm_div_ps(range, _mm_set1_ps(kMostUnits)));
  float up[4];
  _mm_storeu_ps(up, _mm_div_ps(_mm_set1_ps(kMostUnits), range));
  for (int64_t t = 0; t < n; t += 16) {
#pragma GCC unroll 4
    for (int h = 0; h < H; ++h) {
      const __m512 x = _mm512_mul_ps(product(h, t), _mm512_set1_ps(up[h]));
      _mm512_store_si512(digits[h] + t, Digits(_mm512_cvtps_epi32(x)));
    }
  }
}

// Adds elements [0, V * 16) to H rows of results.
template <int H, int V>
__attribute__((noinline)) void AddValues(const uint8_t* bytes, const int32_t* digits,
                                         const float* units, int64_t n, const RowsAhead& ahead,
                                         float* out, int64_t out_ld) {
  SumDots<Signed::kBytes, H, V, kChunk / 16, kWeightStride>(
      bytes, digits, (n + 3) / 4, ahead, [](int, int) { return 0; },
      [&](int h, int v, __m512 whole) {
        float* to = out + h * out_ld + v * 16;
        _mm512_storeu_ps(to, _mm512_fmadd_ps(whole, _mm512_set1_ps(units[h]), _mm512_loadu_ps(to)));
      });
}

// Adds one segment of rows [first, first + n) for all heads.
inline void AddSegment(const RowBlock& values, int64_t first, int64_t n, const uint8_t* bytes,
                       const Segment& segment, const float* scales, const float* weights,
                       int64_t ld, int64_t heads, float* out) {
  alignas(64) int32_t digits[kDotHeads][kWeightStride];
  float units[kDotHeads];
  ForPasses(heads, [&](auto pass, int64_t h) {
    constexpr int H = decltype(pass)::value;
    SetWeights<H>(weights + h * ld, ld, scales, n, digits, units);
    float* to = out + h * values.size + segment.begin;
    const uint8_t* from = bytes + segment.begin % kChunk / 16 * 64;
    const int64_t chunk = segment.begin / kChunk * kChunk;
    int64_t d = 0;
    for (; d + 32 <= segment.size; d += 32) {
      // Each half of a chunk prefetches half of the rows.
      const int64_t half = (segment.begin + d - chunk) / 32 * (kDotTile / 2);
      const RowsAhead ahead(values, first + half, chunk);
      AddValues<H, 2>(from + d / 16 * 64, digits[0], units, n, ahead, to + d, values.size);
    }
    if (d < segment.size) {
      const RowsAhead ahead(values, first, chunk);
      AddValues<H, 1>(from + d / 16 * 64, digits[0], units, n, ahead, to + d, values.size);
    }
  });
}

// Returns true if all n weights of each head are numbers in [0, kMostSize].
inline bool SuitWeights(const float* weights, int64_t ld, int64_t heads, int64_t n) {
  __mmask16 odd = 0;
  for (int64_t h = 0; h < heads; ++h) {
    const float* from = weights + h * ld;
    int64_t t = 0;
    for (; t + 16 <= n; t += 16) odd |= Oversized(_mm512_loadu_ps(from + t), kNotNegative);
    odd |= Oversized(_mm512_maskz_loadu_ps(FirstLanes(n - t), from + t), kNotNegative);
  }
  return odd == 0;
}

inline void DotValues(const RowBlock& values, const float* weights, int64_t ld, int64_t heads,
                      float* out) {
  const auto floats = Avx512Attention()->values;
  if (!SuitsDots(values)) return floats(values, weights, ld, heads, out);
  const Segments segments(values);
  alignas(64) float scales[kMostGroups * kDotTile];
  alignas(64) uint8_t bytes[kChunk * kDotTile];
  for (int64_t t = 0; t < values.rows; t += kDotTile) {
    const int64_t n = values.rows - t < kDotTile ? values.rows - t : kDotTile;
    const float* w = weights + t;
    FetchScales(values, t, n);
    if (!ScalesByGroup(values, t, n, kNotNegative, scales) || !SuitWeights(w, ld, heads, n)) {
      floats(PartOf(values, t, n), w, ld, heads, out);
      continue;
    }
    const int8_t* data = static_cast<const int8_t*>(values.data) + t * values.stride;
    for (int64_t i = 0; i < segments.count; ++i) {
      const Segment& segment = segments.at[i];
      if (segment.begin % kChunk == 0) {
        WithChunkBytes(values.size - segment.begin, [&](auto size) {
          InterleaveValues<decltype(size)::value>(data + segment.begin, values.stride, n, bytes);
        });
      }
      AddSegment(values, t, n, bytes, segment, scales + segment.group * kDotTile, w, ld, heads,
                 out);
    }
  }
}

}  // namespace
}  // namespace kvlift::exec

#endif
