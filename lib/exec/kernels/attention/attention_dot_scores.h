// Scores of int8 keys by byte dot products. Included by attention_vnni.cc. Keys are raised by 128
// to become the unsigned side, and the sum that this adds is computed from the query beforehand.
// Queries become 24-bit numbers with signed digits, in units of the largest element of their
// segment.
#pragma once

#include "exec/kernels/attention/attention_dots.h"

#if defined(__AVX512VNNI__) && defined(KV_AVX2)

namespace kvlift::exec {
namespace {

constexpr int64_t kScoreRows = 16;  // queries that share one rearrangement of the keys
constexpr int64_t kKeyBlock = 32;   // keys that are transposed together
constexpr int kQueryStride = kMostElements + 16;

struct QueryDigits {
  alignas(64) int32_t digits[kScoreRows][kQueryStride];
  float units[kMostElements / 16][kScoreRows];  // by segment
  int32_t starts[kMostElements / 16][kScoreRows][3];
};

// Prepares one segment of one query. Returns false if an element is NaN or too large.
inline bool SetQuery(const float* query, const Segment& segment, int32_t* digits, float* unit,
                     int32_t* start) {
  constexpr float kMostUnits = 0x7F0000;  // keeps the highest digit below 128
  __m512 most = _mm512_setzero_ps();
  __mmask16 odd = 0;
  for (int64_t d = segment.begin; d < segment.begin + segment.size; d += 16) {
    const __m512 x = _mm512_loadu_ps(query + d);
    most = _mm512_max_ps(most, _mm512_abs_ps(x));
    odd |= Oversized(x, kAnySign);
  }
  if (odd != 0) return false;
  const float largest = _mm512_reduce_max_ps(most);
  const float range = largest < kLeastSize ? kLeastSize : largest;
  *unit = range / kMostUnits;
  const __m512 up = _mm512_set1_ps(kMostUnits / range);
  const __m512i middle = _mm512_set1_epi32(0x808080);
  __m512i sums = _mm512_setzero_si512();
  for (int64_t d = segment.begin; d < segment.begin + segment.size; d += 16) {
    const __m512i x = _mm512_cvtps_epi32(_mm512_mul_ps(_mm512_loadu_ps(query + d), up));
    // The bytes of x + middle are the digits raised by 128.
    const __m512i places = Digits(_mm512_xor_si512(_mm512_add_epi32(x, middle), middle));
    AddDot(_mm512_set1_epi8(1), places, &sums);
    _mm512_store_si512(digits + d, places);
  }
  alignas(64) int32_t sum[16];
  _mm512_store_si512(sum, sums);
  for (int p = 0; p < 3; ++p) start[p] = -128 * (sum[p] + sum[4 + p] + sum[8 + p] + sum[12 + p]);
  return true;
}

inline bool SetQueries(const Segments& segments, const float* queries, int64_t size, int64_t rows,
                       QueryDigits* to) {
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t i = 0; i < segments.count; ++i) {
      if (!SetQuery(queries + row * size, segments.at[i], to->digits[row], &to->units[i][row],
                    to->starts[i][row])) {
        return false;
      }
    }
  }
  return true;
}

template <int kBytes>
struct RaisedBytes {
  using Element = int8_t;
  static V16 Load(const int8_t* p) {
    const __m512i bytes = _mm512_xor_si512(LoadBytes<kBytes>(p), _mm512_set1_epi8(-128));
    return {_mm512_castsi512_ps(bytes)};
  }
};

// Transposes up to kChunk bytes of n <= 32 keys in words of four bytes: words[word][key].
template <int kBytes>
void TransposeKeys(const int8_t* rows, int64_t stride, int64_t n, float* words) {
  Transpose16<RaisedBytes<kBytes>>(rows, stride, n, words);
  Transpose16<RaisedBytes<kBytes>>(rows + 16 * stride, stride, n - 16, words + 16);
}

// One chunk of a tile of keys, which holds segments [begin, end) of their rows.
struct KeyChunk {
  const RowBlock* block;
  int64_t first, n, element;
  const Segment* segments;
  int64_t begin, end;
  const float* scales;
};

// Adds the products of a chunk of kBytes to the scores of queries [row, row + H). Each block of
// keys is transposed while the block before it is summed.
template <int H, int kBytes>
__attribute__((noinline)) void ScoreChunk(const KeyChunk& keys, const QueryDigits& queries,
                                          int64_t row, float* scores, int64_t ld) {
  constexpr int64_t kBlockWords = kChunk / 4 * kKeyBlock;
  alignas(64) float words[2 * kBlockWords];
  const int32_t* digits = queries.digits[row];
  const int64_t stride = keys.block->stride;
  const int8_t* rows =
      static_cast<const int8_t*>(keys.block->data) + keys.first * stride + keys.element;
  TransposeKeys<kBytes>(rows, stride, keys.n, words);
  for (int64_t t = 0; t < keys.n; t += kKeyBlock) {
    const int64_t next = t + kKeyBlock;
    if (next < keys.n) {
      TransposeKeys<kBytes>(rows + next * stride, stride, keys.n - next,
                            words + next / kKeyBlock % 2 * kBlockWords);
    }
    RowsAhead ahead(*keys.block, keys.first + t, keys.element);
    const __mmask16 lanes[2] = {FirstLanes(keys.n - t), FirstLanes(keys.n - t - 16)};
    const auto* bytes = reinterpret_cast<const uint8_t*>(words + t / kKeyBlock % 2 * kBlockWords);
    for (int64_t s = keys.begin; s < keys.end; ++s) {
      const int64_t d = keys.segments[s].begin, size = keys.segments[s].size;
      const int32_t* starts = queries.starts[s][row];
      const float* units = queries.units[s] + row;
      const float* scales = keys.scales + keys.segments[s].group * kDotTile + t;
      SumDots<Signed::kDigits, H, 2, 2, kQueryStride>(
          bytes, digits + d, size / 4, ahead, [&](int h, int p) { return starts[h * 3 + p]; },
          [&](int h, int v, __m512 whole) {
            float* to = scores + h * ld + t + v * 16;
            __m512 sum = _mm512_setzero_ps();
            if (s != 0) sum = _mm512_maskz_loadu_ps(lanes[v], to);
            sum = _mm512_fmadd_ps(_mm512_mul_ps(whole, _mm512_set1_ps(units[h])),
                                  _mm512_loadu_ps(scales + v * 16), sum);
            _mm512_mask_storeu_ps(to, lanes[v], sum);
          });
      bytes += size / 4 * kKeyBlock * 4;
      ahead.from += size / 2 * ahead.stride;
    }
  }
}

// Computes the scores of keys [first, first + n) for `rows` queries. Returns false if a scale is
// Oversized.
inline bool ScoreTile(const RowBlock& keys, const Segments& segments, int64_t first, int64_t n,
                      const QueryDigits& queries, int64_t rows, float* scores, int64_t ld) {
  alignas(64) float scales[kMostGroups * kDotTile];
  if (!ScalesByGroup(keys, first, n, kAnySign, scales)) return false;
  FetchScales(keys, first, n);
  KeyChunk chunk = {&keys, first, n, 0, segments.at, 0, 0, scales};
  for (int64_t d = 0; d < keys.size; d += kChunk) {
    chunk.element = d;
    chunk.begin = chunk.end;
    while (chunk.end < segments.count && segments.at[chunk.end].begin < d + kChunk) ++chunk.end;
    WithChunkBytes(keys.size - d, [&](auto bytes) {
      ForPasses(rows, [&](auto pass, int64_t row) {
        ScoreChunk<decltype(pass)::value, decltype(bytes)::value>(chunk, queries, row,
                                                                  scores + row * ld + first, ld);
      });
    });
  }
  return true;
}

inline void DotScores(const RowBlock& keys, const float* queries, int64_t heads, float* scores,
                      int64_t ld) {
  const auto floats = Avx512Attention()->scores;
  if (!SuitsDots(keys)) return floats(keys, queries, heads, scores, ld);
  const Segments segments(keys);
  QueryDigits digits;
  for (int64_t h = 0; h < heads; h += kScoreRows) {
    const int64_t rows = heads - h < kScoreRows ? heads - h : kScoreRows;
    const float* q = queries + h * keys.size;
    float* to = scores + h * ld;
    if (!SetQueries(segments, q, keys.size, rows, &digits)) {
      floats(keys, q, rows, to, ld);
      continue;
    }
    for (int64_t t = 0; t < keys.rows; t += kDotTile) {
      const int64_t n = keys.rows - t < kDotTile ? keys.rows - t : kDotTile;
      if (!ScoreTile(keys, segments, t, n, digits, rows, to, ld)) {
        floats(PartOf(keys, t, n), q, rows, to + t, ld);
      }
    }
  }
}

}  // namespace
}  // namespace kvlift::exec

#endif
