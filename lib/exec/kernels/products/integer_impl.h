// Integer products on vectors; included by gemm_impl.h. Sums are exact, so their order is free.
#pragma once

#include <cstring>

#include "exec/kernels/common/gemm_isa.h"
#include "exec/kernels/common/gemm_simd.h"

namespace kvlift::exec {
namespace {

// Returns the product of two rows of b, less their zero points, with a pair of numbers of a row of
// a.
inline int32_t PairProduct(int32_t a, int32_t b0, int32_t b1) {
  return static_cast<int16_t>(a & 0xFFFF) * b0 + (a >> 16) * b1;
}

template <typename Byte>
void IntegerColumns(const IntegerBlock& p, int64_t first, int64_t end) {
  for (int64_t pair = 0; pair < p.pairs; ++pair) {
    const auto* b0 = static_cast<const Byte*>(p.b) + 2 * pair * p.ldb;
    const Byte* b1 = 2 * pair + 1 < p.k ? b0 + p.ldb : b0;
    for (int i = 0; i < p.m; ++i) {
      const int32_t a = p.a[i * p.lda + pair];
      for (int64_t j = first; j < end; ++j) {
        const int32_t zero = p.zeros[j] >> 16;
        p.c[i * p.ldc + j] += PairProduct(a, b0[j] - zero, b1[j] - zero);
      }
    }
  }
}

#if defined(KV_AVX2)
#if defined(__AVX512F__)
struct Pairs {  // 16 columns: int16 values of one row and of the next, interleaved
  __m512i v;
  template <typename Byte>
  static Pairs Load(const Byte* b0, const Byte* b1, const int32_t* zeros) {
    const __m128i x = _mm_loadu_si128(reinterpret_cast<const __m128i*>(b0));
    const __m128i y = _mm_loadu_si128(reinterpret_cast<const __m128i*>(b1));
    const __m256i both = _mm256_set_m128i(_mm_unpackhi_epi8(x, y), _mm_unpacklo_epi8(x, y));
    const __m512i wide =
        std::is_signed_v<Byte> ? _mm512_cvtepi8_epi16(both) : _mm512_cvtepu8_epi16(both);
    return {_mm512_sub_epi16(wide, _mm512_loadu_si512(zeros))};
  }
};
struct Sums {
  __m512i v;
  static Sums Load(const int32_t* c) { return {_mm512_loadu_si512(c)}; }
  void Add(int32_t a, const Pairs& b) {
    v = _mm512_add_epi32(v, _mm512_madd_epi16(b.v, _mm512_set1_epi32(a)));
  }
  void Store(int32_t* c) const { _mm512_storeu_si512(c, v); }
};
#else
struct Pairs {
  __m256i v[2];
  template <typename Byte>
  static Pairs Load(const Byte* b0, const Byte* b1, const int32_t* zeros) {
    const __m128i x = _mm_loadu_si128(reinterpret_cast<const __m128i*>(b0));
    const __m128i y = _mm_loadu_si128(reinterpret_cast<const __m128i*>(b1));
    const __m128i half[2] = {_mm_unpacklo_epi8(x, y), _mm_unpackhi_epi8(x, y)};
    Pairs p;
    for (int h = 0; h < 2; ++h) {
      const __m256i wide =
          std::is_signed_v<Byte> ? _mm256_cvtepi8_epi16(half[h]) : _mm256_cvtepu8_epi16(half[h]);
      const auto* zero = reinterpret_cast<const __m256i*>(zeros + 8 * h);
      p.v[h] = _mm256_sub_epi16(wide, _mm256_loadu_si256(zero));
    }
    return p;
  }
};
struct Sums {
  __m256i v[2];
  static Sums Load(const int32_t* c) {
    const auto* from = reinterpret_cast<const __m256i*>(c);
    return {{_mm256_loadu_si256(from), _mm256_loadu_si256(from + 1)}};
  }
  void Add(int32_t a, const Pairs& b) {
    const __m256i x = _mm256_set1_epi32(a);
    for (int h = 0; h < 2; ++h) {
      v[h] = _mm256_add_epi32(v[h], _mm256_madd_epi16(b.v[h], x));
    }
  }
  void Store(int32_t* c) const {
    auto* to = reinterpret_cast<__m256i*>(c);
    for (int h = 0; h < 2; ++h) _mm256_storeu_si256(to + h, v[h]);
  }
};
#endif

// Multiplies 16 columns of kPairs pairs of rows, from `pair` on.
template <typename Byte, int kPairs>
void IntegerStep(const IntegerBlock& p, int64_t pair, int64_t j) {
  constexpr int64_t kRowsAhead = 16;
  Pairs b[kPairs];
#pragma GCC unroll 4
  for (int r = 0; r < kPairs; ++r) {
    const int64_t k = 2 * (pair + r);
    const Byte* b0 = static_cast<const Byte*>(p.b) + k * p.ldb + j;
    const Byte* b1 = k + 1 < p.k ? b0 + p.ldb : b0;
    if (j % 64 == 0) {
      __builtin_prefetch(b0 + kRowsAhead * p.ldb);
      __builtin_prefetch(b1 + kRowsAhead * p.ldb);
    }
    b[r] = Pairs::Load(b0, b1, p.zeros + j);
  }
  for (int i = 0; i < p.m; ++i) {
    const int32_t* a = p.a + i * p.lda + pair;
    Sums sums = Sums::Load(p.c + i * p.ldc + j);
#pragma GCC unroll 4
    for (int r = 0; r < kPairs; ++r) sums.Add(a[r], b[r]);
    sums.Store(p.c + i * p.ldc + j);
  }
}

template <typename Byte>
void IntegerProduct(const IntegerBlock& p) {
  const int64_t whole = p.n / 16 * 16;
  int64_t pair = 0;
  for (; pair + 4 <= p.pairs; pair += 4) {
    for (int64_t j = 0; j < whole; j += 16) IntegerStep<Byte, 4>(p, pair, j);
  }
  for (; pair < p.pairs; ++pair) {
    for (int64_t j = 0; j < whole; j += 16) IntegerStep<Byte, 1>(p, pair, j);
  }
  IntegerColumns<Byte>(p, whole, p.n);
}

#else

template <typename Byte>
void IntegerProduct(const IntegerBlock& p) {
  IntegerColumns<Byte>(p, 0, p.n);
}

#endif

inline void IntegerMultiply(const IntegerBlock& p) {
  p.b_signed ? IntegerProduct<int8_t>(p) : IntegerProduct<uint8_t>(p);
}

}  // namespace
}  // namespace kvlift::exec
