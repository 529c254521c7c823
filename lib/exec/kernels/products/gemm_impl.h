// The primitives of gemm_isa.h written on Vec; included by the gemm_*.cc files, once per
// instruction set.
#pragma once

#include <algorithm>

#include "exec/kernels/common/gemm_isa.h"
#include "exec/kernels/common/gemm_simd.h"
#include "exec/kernels/products/bits_impl.h"
#include "exec/kernels/products/convert_impl.h"
#include "exec/kernels/products/integer_impl.h"
#include "exec/kernels/products/panel_impl.h"

namespace kvlift::exec {
namespace {

// Computes c[M, NV vectors] over k, the last vector with `tail` columns if kTail. kPacked: a_row is
// 1.
template <typename T, int M, int NV, bool kTail, bool kPacked>
void TileBody(int tail, int64_t k, const T* a, int64_t a_row, int64_t a_k, const T* b, int64_t ldb,
              T* c, int64_t ldc, bool accumulate) {
  using V = Vec<T>;
  constexpr int L = V::kLanes;
  V acc[M][NV];
  for (int i = 0; i < M; ++i) {
    for (int j = 0; j < NV; ++j) {
      if (!accumulate) {
        acc[i][j] = V::Set(0);
      } else if (kTail && j == NV - 1) {
        acc[i][j] = V::LoadN(c + i * ldc + j * L, tail);
      } else {
        acc[i][j] = V::Load(c + i * ldc + j * L);
      }
    }
  }
  for (int64_t p = 0; p < k; ++p) {
    V row[NV];
#pragma GCC unroll 4
    for (int j = 0; j < NV; ++j) {
      row[j] = kTail && j == NV - 1 ? V::LoadN(b + j * L, tail) : V::Load(b + j * L);
    }
#pragma GCC unroll 16
    for (int i = 0; i < M; ++i) {
      const V x = V::Set(kPacked ? a[i] : a[i * a_row]);
#pragma GCC unroll 4
      for (int j = 0; j < NV; ++j) acc[i][j] = V::Fma(x, row[j], acc[i][j]);
    }
    a += a_k;
    b += ldb;
  }
  for (int i = 0; i < M; ++i) {
    for (int j = 0; j < NV; ++j) {
      if (kTail && j == NV - 1) {
        acc[i][j].StoreN(c + i * ldc + j * L, tail);
      } else {
        acc[i][j].Store(c + i * ldc + j * L);
      }
    }
  }
}

template <typename T, int M, int NV>
void TileVectors(int tail, int64_t k, const T* a, int64_t a_row, int64_t a_k, const T* b,
                 int64_t ldb, T* c, int64_t ldc, bool accumulate) {
  if (tail != 0) {
    TileBody<T, M, NV, true, false>(tail, k, a, a_row, a_k, b, ldb, c, ldc, accumulate);
  } else if (a_row == 1) {
    TileBody<T, M, NV, false, true>(0, k, a, a_row, a_k, b, ldb, c, ldc, accumulate);
  } else {
    TileBody<T, M, NV, false, false>(0, k, a, a_row, a_k, b, ldb, c, ldc, accumulate);
  }
}

template <typename T, int M>
void TileRows(int n, int64_t k, const T* a, int64_t a_row, int64_t a_k, const T* b, int64_t ldb,
              T* c, int64_t ldc, bool accumulate) {
  using V = Vec<T>;
  constexpr int L = V::kLanes, kWide = L * V::kTileVectors;
  int j = 0;
  for (; j + kWide <= n; j += kWide) {
    TileVectors<T, M, V::kTileVectors>(0, k, a, a_row, a_k, b + j, ldb, c + j, ldc, accumulate);
  }
  for (; j < n; j += L) {
    const int tail = n - j < L ? n - j : 0;
    TileVectors<T, M, 1>(tail, k, a, a_row, a_k, b + j, ldb, c + j, ldc, accumulate);
  }
}

template <typename T, int M = Vec<T>::kTileRows>
void Tile(int m, int n, int64_t k, const T* a, int64_t a_row, int64_t a_k, const T* b, int64_t ldb,
          T* c, int64_t ldc, bool accumulate) {
  if constexpr (M > 0) {
    if (m == M) {
      TileRows<T, M>(n, k, a, a_row, a_k, b, ldb, c, ldc, accumulate);
    } else {
      Tile<T, M - 1>(m, n, k, a, a_row, a_k, b, ldb, c, ldc, accumulate);
    }
  }
}

template <typename T>
struct NativeLoad {
  using Element = T;
  static Vec<T> Load(const T* p) { return Vec<T>::Load(p); }
  static Vec<T> LoadN(const T* p, int n) { return Vec<T>::LoadN(p, n); }
};

// Adds R rows of b to m rows of c.
template <typename T, typename Loader, int R>
void StreamRows(int m, int64_t n, const T* a, int64_t lda, const typename Loader::Element* b,
                int64_t ldb, T* c, int64_t ldc, bool first) {
  using V = Vec<T>;
  constexpr int L = V::kLanes;
  int64_t j = 0;
  for (; j + L <= n; j += L) {
    V rows[R];
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) rows[r] = Loader::Load(b + r * ldb + j);
    for (int i = 0; i < m; ++i) {
      V acc = first ? V::Set(0) : V::Load(c + i * ldc + j);
#pragma GCC unroll 8
      for (int r = 0; r < R; ++r) acc = V::Fma(V::Set(a[i * lda + r]), rows[r], acc);
      acc.Store(c + i * ldc + j);
    }
  }
  if (j == n) return;
  const int tail = static_cast<int>(n - j);
  for (int i = 0; i < m; ++i) {
    V acc = first ? V::Set(0) : V::LoadN(c + i * ldc + j, tail);
    for (int r = 0; r < R; ++r) {
      acc = V::Fma(V::Set(a[i * lda + r]), Loader::LoadN(b + r * ldb + j, tail), acc);
    }
    acc.StoreN(c + i * ldc + j, tail);
  }
}

template <typename T, typename Loader>
void StreamAs(int m, int64_t n, int64_t k, const T* a, int64_t lda,
              const typename Loader::Element* b, int64_t ldb, T* c, int64_t ldc) {
  if (k == 0) {
    for (int i = 0; i < m; ++i) std::fill(c + i * ldc, c + i * ldc + n, T{0});
    return;
  }
  constexpr int64_t kStripe = 4096;
  for (int64_t j = 0; j < n; j += kStripe) {
    const int64_t width = std::min(kStripe, n - j);
    int64_t p = 0;
    for (; p + 8 <= k; p += 8) {
      StreamRows<T, Loader, 8>(m, width, a + p, lda, b + p * ldb + j, ldb, c + j, ldc, p == 0);
    }
    for (; p < k; ++p) {
      StreamRows<T, Loader, 1>(m, width, a + p, lda, b + p * ldb + j, ldb, c + j, ldc, p == 0);
    }
  }
}

template <typename T>
void Stream(int m, int64_t n, int64_t k, const T* a, int64_t lda, const void* b, Storage storage,
            int64_t ldb, T* c, int64_t ldc) {
  if constexpr (sizeof(T) == 4) {
    if (storage == Storage::kHalf) {
      return StreamAs<T, HalfLoad>(m, n, k, a, lda, static_cast<const uint16_t*>(b), ldb, c, ldc);
    }
    if (storage == Storage::kBfloat) {
      return StreamAs<T, BfloatLoad>(m, n, k, a, lda, static_cast<const uint16_t*>(b), ldb, c, ldc);
    }
  }
  StreamAs<T, NativeLoad<T>>(m, n, k, a, lda, static_cast<const T*>(b), ldb, c, ldc);
}

#if defined(KV_AVX2)
// Transposes eight rows of b: panel[p][0..8) for p in [0, 8).
inline void Transpose8(const float* b, int64_t ldb, float* panel, int64_t width) {
  __m256 r[8], t[8];
  for (int i = 0; i < 8; ++i) r[i] = _mm256_loadu_ps(b + i * ldb);
  for (int i = 0; i < 8; i += 2) {
    t[i] = _mm256_unpacklo_ps(r[i], r[i + 1]);
    t[i + 1] = _mm256_unpackhi_ps(r[i], r[i + 1]);
  }
  for (int i = 0; i < 8; i += 4) {
    r[i] = _mm256_shuffle_ps(t[i], t[i + 2], 0x44);
    r[i + 1] = _mm256_shuffle_ps(t[i], t[i + 2], 0xEE);
    r[i + 2] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0x44);
    r[i + 3] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0xEE);
  }
  for (int i = 0; i < 4; ++i) {
    _mm256_storeu_ps(panel + i * width, _mm256_permute2f128_ps(r[i], r[i + 4], 0x20));
    _mm256_storeu_ps(panel + (i + 4) * width, _mm256_permute2f128_ps(r[i], r[i + 4], 0x31));
  }
}

inline void Transpose8(const uint16_t* b, int64_t ldb, uint16_t* panel, int64_t width) {
  __m128i r[8], t[8];
  for (int i = 0; i < 8; ++i) r[i] = _mm_loadu_si128(reinterpret_cast<const __m128i*>(b + i * ldb));
  for (int i = 0; i < 4; ++i) {
    t[2 * i] = _mm_unpacklo_epi16(r[i], r[i + 4]);
    t[2 * i + 1] = _mm_unpackhi_epi16(r[i], r[i + 4]);
  }
  for (int i = 0; i < 4; ++i) {
    r[2 * i] = _mm_unpacklo_epi16(t[i], t[i + 4]);
    r[2 * i + 1] = _mm_unpackhi_epi16(t[i], t[i + 4]);
  }
  for (int i = 0; i < 4; ++i) {
    t[2 * i] = _mm_unpacklo_epi16(r[i], r[i + 4]);
    t[2 * i + 1] = _mm_unpackhi_epi16(r[i], r[i + 4]);
  }
  for (int i = 0; i < 8; ++i) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(panel + i * width), t[i]);
  }
}
#endif

template <typename T>
void PackTransposed(int n, int64_t k, const T* b, int64_t ldb, T* panel) {
  constexpr int W = VectorOps<T>::kPanel;
  int j = 0;
#if defined(KV_AVX2)
  if constexpr (sizeof(T) == 4) {
    const int64_t whole = k / 8 * 8;
    for (; j + 8 <= n; j += 8) {
      for (int64_t p = 0; p < whole; p += 8) {
        Transpose8(b + j * ldb + p, ldb, panel + p * W + j, W);
      }
      for (int i = j; i < j + 8; ++i) {
        for (int64_t p = whole; p < k; ++p) panel[p * W + i] = b[i * ldb + p];
      }
    }
  }
#endif
  for (; j < n; ++j) {
    for (int64_t p = 0; p < k; ++p) panel[p * W + j] = b[j * ldb + p];
  }
  if (j == W) return;
  for (int64_t p = 0; p < k; ++p) {
    for (int i = j; i < W; ++i) panel[p * W + i] = 0;
  }
}

inline void PackRows(int m, int64_t k, const float* a, int64_t lda, float* out) {
  int64_t p = 0;
#if defined(KV_AVX2)
  // Transposes eight columns at once. The upper rows go first, since each of their vectors overlaps
  // the rows of the next column.
  for (; m >= 8 && p + 8 <= k; p += 8) {
    if (m > 8) {
      float part[64], rows[64];
      for (int i = 0; i < 8; ++i) {
        std::copy_n(a + std::min(i + 8, m - 1) * lda + p, 8, rows + i * 8);
      }
      Transpose8(rows, 8, part, 8);
      for (int t = 0; t < 8; ++t) std::copy_n(part + t * 8, 8, out + (p + t) * m + 8);
    }
    Transpose8(a + p, lda, out + p * m, m);
  }
#endif
  for (; p < k; ++p) {
    for (int i = 0; i < m; ++i) out[p * m + i] = a[i * lda + p];
  }
}

inline void PackTransposed16(int n, int64_t k, const uint16_t* b, int64_t ldb, uint16_t* panel) {
  constexpr int W = VectorOps<float>::kPanel;
  int64_t p = 0;
#if defined(KV_AVX2)
  for (; n == W && p + 8 <= k; p += 8) {
    for (int j = 0; j < W; j += 8) Transpose8(b + j * ldb + p, ldb, panel + p * W + j, W);
  }
#endif
  for (; p < k; ++p) {
    for (int j = 0; j < W; ++j) panel[p * W + j] = j < n ? b[j * ldb + p] : uint16_t{0};
  }
}

template <typename T>
T TreeSum(Vec<T> v) {
  constexpr int L = Vec<T>::kLanes;
#if defined(__AVX512F__) && defined(KV_AVX2)
  if constexpr (sizeof(T) == 4) {  // the same pairs of lanes
    const __m256 a = _mm256_add_ps(_mm512_castps512_ps256(v.v), _mm512_extractf32x8_ps(v.v, 1));
    const __m128 b = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    const __m128 c = _mm_add_ps(b, _mm_movehl_ps(b, b));
    return _mm_cvtss_f32(_mm_add_ss(c, _mm_movehdup_ps(c)));
  }
#endif
  T t[L];
  v.Store(t);
  for (int half = L / 2; half > 0; half /= 2) {
    for (int i = 0; i < half; ++i) t[i] = t[i] + t[i + half];
  }
  return t[0];
}

// Sums f(vector) over the vectors of x. The last vector is filled with 0; f must map that to 0.
template <typename T, typename F>
T LaneSum(const T* x, int64_t n, F f) {
  using V = Vec<T>;
  constexpr int L = V::kLanes;
  V acc = V::Set(0);
  int64_t i = 0;
  for (; i + L <= n; i += L) acc = acc + f(V::Load(x + i));
  if (i < n) {
    const int tail = static_cast<int>(n - i);
    T t[L];
    f(V::LoadN(x + i, tail)).Store(t);
    acc = acc + V::LoadN(t, tail);
  }
  return TreeSum<T>(acc);
}

template <typename T>
T Sum(const T* x, int64_t n) {
  return LaneSum<T>(x, n, [](Vec<T> v) { return v; });
}

template <typename T>
T SumSquares(const T* x, int64_t n) {
  return LaneSum<T>(x, n, [](Vec<T> v) { return v * v; });
}

template <typename T>
T SumCenteredSquares(const T* x, int64_t n, T mean) {
  const Vec<T> m = Vec<T>::Set(mean);
  return LaneSum<T>(x, n, [m](Vec<T> v) { return (v - m) * (v - m); });
}

template <typename T>
T Maximum(const T* x, int64_t n) {
  using V = Vec<T>;
  constexpr int L = V::kLanes;
  const T lowest = -std::numeric_limits<T>::infinity();
  V best = V::Set(lowest), difference = V::Set(0);
  int64_t i = 0;
  // x - x is NaN for NaN, and for infinities, which are checked again below.
  for (; i + L <= n; i += L) {
    const V v = V::Load(x + i);
    best = V::Max(v, best);
    difference = difference + (v - v);
  }
  T t[L], d[L];
  best.Store(t);
  difference.Store(d);
  T result = lowest;
  bool odd = false;
  for (int j = 0; j < L; ++j) {
    if (t[j] > result) result = t[j];
    odd = odd || d[j] != T{0};
  }
  for (int64_t j = odd ? 0 : i; j < n; ++j) {
    if (x[j] != x[j]) return x[j];
    if (x[j] > result) result = x[j];
  }
  return result;
}

template <typename T>
T ExpSum(const T* x, int64_t n, T shift, T* y) {
  using V = Vec<T>;
  constexpr int L = V::kLanes;
  const V s = V::Set(shift);
  V acc = V::Set(0);
  int64_t i = 0;
  for (; i + L <= n; i += L) {
    const V e = Exp(V::Load(x + i) - s);
    e.Store(y + i);
    acc = acc + e;
  }
  if (i < n) {
    const int tail = static_cast<int>(n - i);
    const V e = Exp(V::LoadN(x + i, tail) - s);
    e.StoreN(y + i, tail);
    acc = acc + V::LoadN(y + i, tail);
  }
  return TreeSum<T>(acc);
}

template <typename T, typename F>
void Map(const T* x, int64_t n, T* y, F f) {
  using V = Vec<T>;
  constexpr int L = V::kLanes;
  int64_t i = 0;
  for (; i + L <= n; i += L) f(V::Load(x + i)).Store(y + i);
  if (i < n) {
    const int tail = static_cast<int>(n - i);
    f(V::LoadN(x + i, tail)).StoreN(y + i, tail);
  }
}

template <typename T>
void ExpAll(const T* x, int64_t n, T* y) {
  Map<T>(x, n, y, [](Vec<T> v) { return Exp(v); });
}

template <typename T>
void Sigmoid(const T* x, int64_t n, T* y) {
  const Vec<T> one = Vec<T>::Set(1), zero = Vec<T>::Set(0);
  Map<T>(x, n, y, [one, zero](Vec<T> v) { return one / (one + Exp(zero - v)); });
}

template <typename T>
void Divide(const T* x, int64_t n, T by, T* y) {
  const Vec<T> d = Vec<T>::Set(by);
  Map<T>(x, n, y, [d](Vec<T> v) { return v / d; });
}

constexpr int kProbeChains = Vec<float>::kTileRows * Vec<float>::kTileVectors;

inline float ProbeChains(int64_t rounds) {
  using V = Vec<float>;
  V acc[kProbeChains];
  for (int i = 0; i < kProbeChains; ++i) acc[i] = V::Set(static_cast<float>(i));
  const V x = V::Set(0.999f), y = V::Set(1e-5f);
  for (int64_t r = 0; r < rounds; ++r) {
#pragma GCC unroll 24
    for (int i = 0; i < kProbeChains; ++i) acc[i] = V::Fma(acc[i], x, y);
  }
  for (int i = 1; i < kProbeChains; ++i) acc[0] = acc[0] + acc[i];
  return TreeSum<float>(acc[0]);
}

inline float ProbeRead(const float* x, int64_t n) {
  using V = Vec<float>;
  V acc[4] = {V::Set(0), V::Set(0), V::Set(0), V::Set(0)};
  for (int64_t i = 0; i + 64 <= n; i += 64) {
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j) acc[j] = acc[j] + V::Load(x + i + j * 16);
  }
  return TreeSum<float>((acc[0] + acc[1]) + (acc[2] + acc[3]));
}

template <typename T>
constexpr VectorOps<T> MakeVectorOps() {
  return {Vec<T>::kTileRows, Tile<T>,   Stream<T>,     PackTransposed<T>,
          Maximum<T>,        Sum<T>,    SumSquares<T>, SumCenteredSquares<T>,
          ExpSum<T>,         ExpAll<T>, Sigmoid<T>,    Divide<T>};
}

constexpr IsaTable MakeIsaTable(const char* name) {
  return {name,
          MakeVectorOps<float>(),
          MakeVectorOps<double>(),
          {Vec<float>::kTileRows, Vec<float>::kWideRows, PanelTile, PackRows, PackTransposed16},
          {BitsStream, BitsExpand},
          {HalfToFloats, FloatsToHalf, BfloatToFloats, FloatsToBfloat},
          IntegerMultiply,
          {int64_t{2} * kProbeChains * Vec<float>::kLanes, ProbeChains, ProbeRead}};
}

}  // namespace
}  // namespace kvlift::exec
