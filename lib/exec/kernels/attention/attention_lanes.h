// Sums over the lanes of vectors; included by the attention_*.cc files of one instruction set each.
#pragma once

#include "exec/kernels/attention/attention_pack.h"

namespace kvlift::exec {
namespace {

// SumLanes sets out[i] to the sum of the lanes of vector SumOrder(i), for 16 vectors.
constexpr int SumOrder(int i) { return 4 * (i % 4) + i / 4; }

#if defined(__AVX512F__) && defined(KV_AVX2)

constexpr int kMaxAccumulators = 24;
using Partial = V16;
inline Partial Fold(V16 x) { return x; }

inline void SumLanes(const Partial (&v)[16], float* out) {
  __m512 a[8], b[4], c[2];
#pragma GCC unroll 8
  for (int i = 0; i < 8; ++i) {
    a[i] = _mm512_add_ps(_mm512_shuffle_f32x4(v[2 * i].v, v[2 * i + 1].v, 0x44),
                         _mm512_shuffle_f32x4(v[2 * i].v, v[2 * i + 1].v, 0xEE));
  }
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    b[i] = _mm512_add_ps(_mm512_shuffle_f32x4(a[2 * i], a[2 * i + 1], 0x88),
                         _mm512_shuffle_f32x4(a[2 * i], a[2 * i + 1], 0xDD));
  }
  for (int i = 0; i < 2; ++i) {
    c[i] = _mm512_add_ps(_mm512_shuffle_ps(b[2 * i], b[2 * i + 1], 0x44),
                         _mm512_shuffle_ps(b[2 * i], b[2 * i + 1], 0xEE));
  }
  _mm512_storeu_ps(
      out, _mm512_add_ps(_mm512_shuffle_ps(c[0], c[1], 0x88), _mm512_shuffle_ps(c[0], c[1], 0xDD)));
}

#elif defined(KV_AVX2)

constexpr int kMaxAccumulators = 4;
using Partial = __m256;
inline Partial Fold(V16 x) { return _mm256_add_ps(x.a, x.b); }

inline void SumLanes(const Partial (&v)[16], float* out) {
  __m256 b[8], c[4], d[2];
  for (int i = 0; i < 8; ++i) {
    b[i] = _mm256_add_ps(_mm256_permute2f128_ps(v[2 * i], v[2 * i + 1], 0x20),
                         _mm256_permute2f128_ps(v[2 * i], v[2 * i + 1], 0x31));
  }
  // b[2 q + p] holds vectors 4 q + 2 p and 4 q + 2 p + 1; element q of a result comes from quad q.
  for (int p = 0; p < 2; ++p) {
    c[p] = _mm256_add_ps(_mm256_shuffle_ps(b[p], b[2 + p], 0x44),
                         _mm256_shuffle_ps(b[p], b[2 + p], 0xEE));
    c[2 + p] = _mm256_add_ps(_mm256_shuffle_ps(b[4 + p], b[6 + p], 0x44),
                             _mm256_shuffle_ps(b[4 + p], b[6 + p], 0xEE));
  }
  for (int p = 0; p < 2; ++p) {
    d[p] = _mm256_add_ps(_mm256_shuffle_ps(c[p], c[2 + p], 0x88),
                         _mm256_shuffle_ps(c[p], c[2 + p], 0xDD));
    _mm256_storeu_ps(out + 8 * p, d[p]);
  }
}

#else

constexpr int kMaxAccumulators = 8;
using Partial = V16;
inline Partial Fold(V16 x) { return x; }

inline void SumLanes(const Partial (&v)[16], float* out) {
  for (int i = 0; i < 16; ++i) {
    float t[16];
    v[SumOrder(i)].Store(t);
    for (int half = 8; half > 0; half /= 2) {
      for (int k = 0; k < half; ++k) t[k] = t[k] + t[k + half];
    }
    out[i] = t[0];
  }
}

#endif

// Tokens of a block of scores, so that heads * tokens gives up to 16 sums.
constexpr int BlockTokens(int heads) { return heads == 1 ? 16 : heads == 2 ? 8 : 4; }

}  // namespace
}  // namespace kvlift::exec
