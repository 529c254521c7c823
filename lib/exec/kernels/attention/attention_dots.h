// Sums of int8 numbers times 24-bit numbers by byte dot products (VNNI). Included by
// attention_vnni.cc. A 24-bit number has three digits of one byte. Each digit has an exact integer
// sum, and the three sums become one float in the end, so the only errors are the rounding of the
// operand to 24 bits and the roundings of that final sum.
#pragma once

#include <type_traits>

#include "exec/kernels/attention/attention_isa.h"
#include "exec/kernels/attention/attention_pack.h"

#if defined(__AVX512VNNI__) && defined(KV_AVX2)

namespace kvlift::exec {
namespace {

constexpr int64_t kDotTile = 128;       // rows that are rearranged at a time
constexpr int64_t kChunk = 64;          // elements of them that are rearranged at a time
constexpr int64_t kMostElements = 512;  // of a row; longer rows use float sums
constexpr int64_t kMostGroups = 16;     // scales of a row; with more, float sums are used
constexpr int kDotHeads = 4;            // queries or weight rows that share one load of bytes
constexpr float kMostSize = 0x1p60f;    // largest scale, weight or query element
constexpr float kLeastSize = 0x1p-100f;

// Returns true if a block is computed by dot products. Blocks with few rows, long rows or many
// scales use float sums.
inline bool SuitsDots(const RowBlock& rows) {
  return rows.scales != nullptr && rows.rows >= 16 && rows.size <= kMostElements &&
         rows.size / rows.group <= kMostGroups;
}

inline __mmask16 FirstLanes(int64_t n) {
  const int64_t lanes = n >= 16 ? 16 : n <= 0 ? 0 : n;
  return static_cast<__mmask16>((1u << lanes) - 1);
}

// Returns the lanes that, after masking with `bits`, are NaN or exceed kMostSize.
inline __mmask16 Oversized(__m512 x, uint32_t bits) {
  const __m512i most = _mm512_castps_si512(_mm512_set1_ps(kMostSize));
  const __m512i seen =
      _mm512_and_si512(_mm512_castps_si512(x), _mm512_set1_epi32(static_cast<int>(bits)));
  return _mm512_cmpgt_epu32_mask(seen, most);
}
constexpr uint32_t kAnySign = 0x7FFFFFFF, kNotNegative = 0xFFFFFFFF;

// A part of a row, within one chunk, whose elements share a scale.
struct Segment {
  int64_t begin, size, group;
};
struct Segments {
  explicit Segments(const RowBlock& rows) {
    for (int64_t d = 0; d < rows.size; d = at[count - 1].begin + at[count - 1].size) {
      const int64_t group = d / rows.group, chunk = d / kChunk;
      const int64_t end = (group + 1) * rows.group, next = (chunk + 1) * kChunk;
      const int64_t stop = end < next ? end : next;
      at[count++] = {d, (stop < rows.size ? stop : rows.size) - d, group};
    }
  }
  Segment at[kMostElements / 16];
  int64_t count = 0;
};

// Calls f(integral constant) with the bytes of a row in the last chunk of the row.
template <typename F>
void WithChunkBytes(int64_t bytes, F f) {
  if (bytes >= 64) return f(std::integral_constant<int, 64>());
  if (bytes == 48) return f(std::integral_constant<int, 48>());
  if (bytes == 32) return f(std::integral_constant<int, 32>());
  return f(std::integral_constant<int, 16>());
}
template <int kBytes>
__m512i LoadBytes(const void* p) {
  if constexpr (kBytes == 64) return _mm512_loadu_si512(p);
  return _mm512_maskz_loadu_epi8((uint64_t{1} << kBytes % 64) - 1, p);
}

// Calls f(integral constant, first row) for passes of up to kDotHeads of `rows` rows.
template <typename F>
void ForPasses(int64_t rows, F f) {
  for (int64_t row = 0; row < rows;) {
    const int64_t left = rows - row, count = left <= 4 ? left : left <= 6 ? 3 : 4;
    switch (count) {
      case 1:
        f(std::integral_constant<int, 1>(), row);
        break;
      case 2:
        f(std::integral_constant<int, 2>(), row);
        break;
      case 3:
        f(std::integral_constant<int, 3>(), row);
        break;
      default:
        f(std::integral_constant<int, 4>(), row);
    }
    row += count;
  }
}

// Groups the bytes of each four numbers by significance: their lowest bytes as one word, then the
// second, third and highest ones.
inline __m512i Digits(__m512i numbers) {
  const __m512i order = _mm512_set4_epi32(0x0F0B0703, 0x0E0A0602, 0x0D090501, 0x0C080400);
  return _mm512_shuffle_epi8(numbers, order);
}
// Returns the number whose digits have these sums.
inline __m512 Whole(__m512i low, __m512i middle, __m512i high) {
  const __m512i upper = _mm512_add_epi32(_mm512_slli_epi32(high, 8), middle);
  return _mm512_fmadd_ps(_mm512_cvtepi32_ps(upper), _mm512_set1_ps(256), _mm512_cvtepi32_ps(low));
}

// Adds the four products of each lane to sum. It is written in assembly because GCC 12 copies and
// spills the sums of its own intrinsic.
inline void AddDot(__m512i unsigned_bytes, __m512i signed_bytes, __m512i* sum) {
  asm("vpdpbusd %2, %1, %0" : "+v"(*sum) : "v"(unsigned_bytes), "v"(signed_bytes));
}

// Prefetches rows that are read kBytesAhead later, two at a time: prefetching many at once would
// delay the current reads.
struct RowsAhead {
  // Points to element d of those rows, in the block or in the next one; to nothing if neither has
  // them.
  RowsAhead(const RowBlock& block, int64_t t, int64_t d) {
    constexpr int64_t kBytesAhead = 8192, kFewest = kDotTile;
    const int64_t rows = kBytesAhead / block.stride;
    t += rows < kFewest ? kFewest : rows;
    if (t < block.rows) {
      from = static_cast<const char*>(block.data) + t * block.stride + d;
      stride = block.stride;
    } else if (block.next != nullptr) {
      from = static_cast<const char*>(block.next) + (t - block.rows) * block.stride + d;
      stride = block.stride;
    } else {
      from = static_cast<const char*>(block.data);
    }
  }
  void Fetch(int64_t pair) const {
    FetchLine(from + 2 * pair * stride);
    FetchLine(from + (2 * pair + 1) * stride);
  }

  const char* from;
  int64_t stride = 0;
};
// Prefetches the scales of n rows, one tile after row t.
inline void FetchScales(const RowBlock& block, int64_t t, int64_t n) {
  t += kDotTile;
  const float* from = t < block.rows ? block.scales : block.next_scales;
  if (from == nullptr) return;
  from += (t < block.rows ? t : t - block.rows) * block.scale_stride;
  for (int64_t i = 0; i < n * block.scale_stride; i += 16) FetchLine(from + i);
}

// The side whose bytes are signed; the other one is unsigned.
enum class Signed { kBytes, kDigits };

// For h < H and v < V, calls done(h, v, sum), where sum adds, for k < words, the four bytes of each
// lane of bytes[k][v] times the four numbers whose digits are at digits[h * LD + k * 4]. The sums
// of digit p begin with start(h, p); bytes[k] are STEP vectors apart. Prefetches pair k of `ahead`.
template <Signed SIGNED, int H, int V, int STEP, int LD, typename Start, typename Done>
__attribute__((always_inline)) inline void SumDots(const uint8_t* bytes, const int32_t* digits,
                                                   int64_t words, const RowsAhead& ahead,
                                                   Start start, Done done) {
  __m512i sums[H * 3][V];
#pragma GCC unroll 12
  for (int i = 0; i < H * 3; ++i) {
    sums[i][0] = _mm512_set1_epi32(start(i / 3, i % 3));
#pragma GCC unroll 2
    for (int v = 1; v < V; ++v) sums[i][v] = sums[i][0];
  }
#pragma GCC unroll 1
  for (int64_t k = 0; k < words; ++k) {
    ahead.Fetch(k);
    __m512i four[V];
#pragma GCC unroll 2
    for (int v = 0; v < V; ++v) four[v] = _mm512_loadu_si512(bytes + (k * STEP + v) * 64);
#pragma GCC unroll 12
    for (int i = 0; i < H * 3; ++i) {
      const __m512i digit = _mm512_set1_epi32(digits[i / 3 * LD + k * 4 + i % 3]);
#pragma GCC unroll 2
      for (int v = 0; v < V; ++v) {
        AddDot(SIGNED == Signed::kDigits ? four[v] : digit,
               SIGNED == Signed::kDigits ? digit : four[v], &sums[i][v]);
      }
    }
  }
#pragma GCC unroll 4
  for (int h = 0; h < H; ++h) {
#pragma GCC unroll 2
    for (int v = 0; v < V; ++v) {
      done(h, v, Whole(sums[h * 3][v], sums[h * 3 + 1][v], sums[h * 3 + 2][v]));
    }
  }
}

// Splits the 32 elements of a and b into those with even and those with odd index.
inline void PullApart(__m512* a, __m512* b) {
  const __m512i even = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
  const __m512i odd = _mm512_or_si512(even, _mm512_set1_epi32(1));
  const __m512 x = *a;
  *a = _mm512_permutex2var_ps(x, even, *b);
  *b = _mm512_permutex2var_ps(x, odd, *b);
}

// Transposes the scales of n <= 16 rows at `from`: to[g * kDotTile + t] is that of group g and row
// t, 0 for n <= t < 16. Returns the lanes of all scales that are Oversized.
template <int G>
__mmask16 PlaceScales(const float* from, int64_t n, uint32_t bits, float* to) {
  __m512 x[G];
  __mmask16 odd = 0;
#pragma GCC unroll 4
  for (int i = 0; i < G; ++i) {
    x[i] = n == 16 ? _mm512_loadu_ps(from + i * 16)
                   : _mm512_maskz_loadu_ps(FirstLanes(n * G - i * 16), from + i * 16);
    odd |= Oversized(x[i], bits);
  }
  if constexpr (G >= 2) PullApart(&x[0], &x[1]);
  if constexpr (G == 4) {
    PullApart(&x[2], &x[3]);
    PullApart(&x[0], &x[2]);
    PullApart(&x[1], &x[3]);
  }
#pragma GCC unroll 4
  for (int g = 0; g < G; ++g) _mm512_storeu_ps(to + g * kDotTile, x[g]);
  return odd;
}
inline __mmask16 GatherScales(const float* from, int64_t stride, int64_t groups, int64_t n,
                              uint32_t bits, float* to) {
  const __m512i lane = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
  const __m512i at = _mm512_mullo_epi32(lane, _mm512_set1_epi32(static_cast<int>(stride)));
  __mmask16 odd = 0;
  for (int64_t g = 0; g < groups; ++g) {
    const __m512 x = _mm512_mask_i32gather_ps(_mm512_setzero_ps(), FirstLanes(n), at, from + g, 4);
    odd |= Oversized(x, bits);
    _mm512_storeu_ps(to + g * kDotTile, x);
  }
  return odd;
}

// Transposes the scales of rows [first, first + n), n <= kDotTile, in the same layout. Returns true
// if no scale is Oversized.
inline bool ScalesByGroup(const RowBlock& rows, int64_t first, int64_t n, uint32_t bits,
                          float* to) {
  const int64_t stride = rows.scale_stride, groups = rows.size / rows.group;
  const float* from = rows.scales + first * stride;
  const auto all = [&](auto place) {
    __mmask16 odd = 0;
    for (int64_t t = 0; t < n; t += 16) {
      odd |= place(from + t * stride, n - t < 16 ? n - t : 16, to + t);
    }
    return odd == 0;
  };
  const auto dense = [&](auto g) {
    return all([bits](const float* x, int64_t count, float* y) {
      return PlaceScales<decltype(g)::value>(x, count, bits, y);
    });
  };
  if (stride == groups && groups == 1) return dense(std::integral_constant<int, 1>());
  if (stride == groups && groups == 2) return dense(std::integral_constant<int, 2>());
  if (stride == groups && groups == 4) return dense(std::integral_constant<int, 4>());
  return all([=](const float* x, int64_t count, float* y) {
    return GatherScales(x, stride, groups, count, bits, y);
  });
}

// Returns rows [first, first + n) of an int8 block.
inline RowBlock PartOf(const RowBlock& rows, int64_t first, int64_t n) {
  RowBlock part = rows;
  part.data = static_cast<const int8_t*>(rows.data) + first * rows.stride;
  part.scales += first * rows.scale_stride;
  part.rows = n;
  part.next = nullptr;
  part.next_scales = nullptr;
  return part;
}

}  // namespace
}  // namespace kvlift::exec

#endif
