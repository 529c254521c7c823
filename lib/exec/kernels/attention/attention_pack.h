// Loads rows of keys and values as vectors, and packs them for the matrix kernel. Included by the
// attention_*.cc files, each of which is compiled for one instruction set.
#pragma once

#include <initializer_list>

#include "exec/kernels/attention/attention_isa.h"
#include "exec/kernels/common/gemm_simd.h"

namespace kvlift::exec {
namespace {

using V16 = Vec<float>;

// Prefetches the cache line at p, which need not be valid memory. It is written in assembly because
// GCC 12 drops calls of a function that contains only _mm_prefetch.
inline void FetchLine(const void* p) {
#if defined(KV_AVX2)
  asm volatile("prefetcht0 %0" : : "m"(*static_cast<const char*>(p)));
#else
  (void)p;
#endif
}

struct NativeRow {
  using Element = float;
  static V16 Load(const float* p) { return V16::Load(p); }
};
struct HalfRow {
  using Element = uint16_t;
  static V16 Load(const uint16_t* p) { return V16::LoadHalf(p); }
};
struct BfloatRow {
  using Element = uint16_t;
  static V16 Load(const uint16_t* p) { return V16::LoadBfloat(p); }
};

#if defined(__AVX512F__) && defined(KV_AVX2)

// Sets panel[d * 32 + t] to element d of row t, for 16 rows and 16 elements.
template <typename Row>
void Transpose16(const typename Row::Element* rows, int64_t stride, int64_t count, float* panel) {
  __m512 r[16], t[16];
  if (count >= 16) {
#pragma GCC unroll 16
    for (int i = 0; i < 16; ++i) r[i] = Row::Load(rows + i * stride).v;
  } else {
#pragma GCC unroll 16
    for (int i = 0; i < 16; ++i) {
      r[i] = i < count ? Row::Load(rows + i * stride).v : _mm512_setzero_ps();
    }
  }
#pragma GCC unroll 8
  for (int i = 0; i < 16; i += 2) {
    t[i] = _mm512_unpacklo_ps(r[i], r[i + 1]);
    t[i + 1] = _mm512_unpackhi_ps(r[i], r[i + 1]);
  }
  // r[4 i + c] holds column 4 j + c of rows 4 i .. 4 i + 3 in quarter j.
#pragma GCC unroll 4
  for (int i = 0; i < 16; i += 4) {
    r[i] = _mm512_shuffle_ps(t[i], t[i + 2], 0x44);
    r[i + 1] = _mm512_shuffle_ps(t[i], t[i + 2], 0xEE);
    r[i + 2] = _mm512_shuffle_ps(t[i + 1], t[i + 3], 0x44);
    r[i + 3] = _mm512_shuffle_ps(t[i + 1], t[i + 3], 0xEE);
  }
#pragma GCC unroll 4
  for (int c = 0; c < 4; ++c) {
    const __m512 low0 = _mm512_shuffle_f32x4(r[c], r[4 + c], 0x44);
    const __m512 low1 = _mm512_shuffle_f32x4(r[8 + c], r[12 + c], 0x44);
    const __m512 high0 = _mm512_shuffle_f32x4(r[c], r[4 + c], 0xEE);
    const __m512 high1 = _mm512_shuffle_f32x4(r[8 + c], r[12 + c], 0xEE);
    _mm512_storeu_ps(panel + c * 32, _mm512_shuffle_f32x4(low0, low1, 0x88));
    _mm512_storeu_ps(panel + (4 + c) * 32, _mm512_shuffle_f32x4(low0, low1, 0xDD));
    _mm512_storeu_ps(panel + (8 + c) * 32, _mm512_shuffle_f32x4(high0, high1, 0x88));
    _mm512_storeu_ps(panel + (12 + c) * 32, _mm512_shuffle_f32x4(high0, high1, 0xDD));
  }
}

template <typename Row>
void PackKeysAs(const RowBlock& keys, float* panel) {
  const auto* data = static_cast<const typename Row::Element*>(keys.data);
  for (int64_t t = 0; t < 32; t += 16) {
    const int64_t count = keys.rows - t;
    for (int64_t d = 0; d < keys.size; d += 16) {
      Transpose16<Row>(data + t * keys.stride + d, keys.stride, count, panel + d * 32 + t);
    }
  }
}

inline void PackKeys(const RowBlock& keys, float* panel) {
  switch (keys.storage) {
    case Storage::kHalf:
      return PackKeysAs<HalfRow>(keys, panel);
    case Storage::kBfloat:
      return PackKeysAs<BfloatRow>(keys, panel);
    default:
      return PackKeysAs<NativeRow>(keys, panel);
  }
}
constexpr auto kPackKeys = PackKeys;

#else

constexpr void (*kPackKeys)(const RowBlock&, float*) = nullptr;

#endif

template <typename Row>
void PackValuesAs(const RowBlock& values, int64_t ld, float* panels) {
  const auto* row = static_cast<const typename Row::Element*>(values.data);
  for (int64_t t = 0; t < values.rows; ++t, row += values.stride) {
    for (int64_t d = 0; d < values.size; d += 16) {
      Row::Load(row + d).Store(panels + (d / 32 * ld + t) * 32 + d % 32);
    }
  }
}

inline void PackValues(const RowBlock& values, int64_t ld, float* panels) {
  switch (values.storage) {
    case Storage::kHalf:
      return PackValuesAs<HalfRow>(values, ld, panels);
    case Storage::kBfloat:
      return PackValuesAs<BfloatRow>(values, ld, panels);
    default:
      return PackValuesAs<NativeRow>(values, ld, panels);
  }
}

}  // namespace
}  // namespace kvlift::exec
