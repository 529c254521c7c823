// ConvertOps written on Vec; included by gemm_impl.h, once per instruction set.
#pragma once

#include <cstdint>
#include <cstring>

#include "exec/kernels/common/gemm_simd.h"

namespace kvlift::exec {
namespace {

struct HalfLoad {
  using Element = uint16_t;
  static Vec<float> Load(const uint16_t* p) { return Vec<float>::LoadHalf(p); }
  static Vec<float> LoadN(const uint16_t* p, int n) {
    uint16_t t[16] = {};
    for (int i = 0; i < n; ++i) t[i] = p[i];
    return Load(t);
  }
};

struct BfloatLoad {
  using Element = uint16_t;
  static Vec<float> Load(const uint16_t* p) { return Vec<float>::LoadBfloat(p); }
  static Vec<float> LoadN(const uint16_t* p, int n) {
    uint16_t t[16] = {};
    for (int i = 0; i < n; ++i) t[i] = p[i];
    return Load(t);
  }
};

inline void HalfToFloats(const uint16_t* x, int64_t n, float* y) {
  int64_t i = 0;
  for (; i + 16 <= n; i += 16) HalfLoad::Load(x + i).Store(y + i);
  if (i < n) HalfLoad::LoadN(x + i, static_cast<int>(n - i)).StoreN(y + i, static_cast<int>(n - i));
}

inline void BfloatToFloats(const uint16_t* x, int64_t n, float* y) {
  int64_t i = 0;
  for (; i + 16 <= n; i += 16) BfloatLoad::Load(x + i).Store(y + i);
  if (i < n) {
    BfloatLoad::LoadN(x + i, static_cast<int>(n - i)).StoreN(y + i, static_cast<int>(n - i));
  }
}

inline void FloatsToHalf(const float* x, int64_t n, uint16_t* y) {
  int64_t i = 0;
  for (; i + 16 <= n; i += 16) Vec<float>::Load(x + i).StoreHalf(y + i);
  if (i < n) {
    uint16_t t[16];
    Vec<float>::LoadN(x + i, static_cast<int>(n - i)).StoreHalf(t);
    for (int64_t j = i; j < n; ++j) y[j] = t[j - i];
  }
}

inline void FloatsToBfloat(const float* x, int64_t n, uint16_t* y) {
  int64_t i = 0;
#if defined(KV_AVX2)
  const auto round8 = [](__m256 v) {
    const __m256i bits = _mm256_castps_si256(v), high = _mm256_srli_epi32(bits, 16);
    const __m256i odd = _mm256_and_si256(high, _mm256_set1_epi32(1));
    const __m256i up = _mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7FFF)), odd);
    const __m256i nan = _mm256_or_si256(high, _mm256_set1_epi32(0x40));
    const __m256i is_nan = _mm256_castps_si256(_mm256_cmp_ps(v, v, _CMP_UNORD_Q));
    return _mm256_blendv_epi8(_mm256_srli_epi32(up, 16), nan, is_nan);
  };
  for (; i + 16 <= n; i += 16) {
    const __m256i packed =
        _mm256_packus_epi32(round8(_mm256_loadu_ps(x + i)), round8(_mm256_loadu_ps(x + i + 8)));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(y + i), _mm256_permute4x64_epi64(packed, 0xD8));
  }
#endif
  for (; i < n; ++i) {
    uint32_t bits;
    std::memcpy(&bits, x + i, 4);
    const bool nan = (bits & 0x7FFFFFFFu) > 0x7F800000u;
    const uint32_t rounded = (bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16;
    y[i] = static_cast<uint16_t>(nan ? (bits >> 16) | 0x40u : rounded);
  }
}

}  // namespace
}  // namespace kvlift::exec
