// Vectors of 16 floats or 8 doubles for the instruction set that the including file is compiled
// for. Included by the gemm_*.cc and attention_*.cc files only. Everything has internal linkage, so
// that code of one instruction set never replaces that of another at link time.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>

#if defined(__AVX2__) && defined(__FMA__) && defined(__F16C__)
#include <immintrin.h>
#define KV_AVX2 1
#endif

namespace kvlift::exec {
namespace {

// Whether loops are compiled for the usual sizes as well. On x86-64 the portable tables, for
// processors without AVX2, go without them: they would take longer to compile than all others
// together.
#if defined(KV_AVX2) || !defined(__x86_64__)
constexpr bool kForSizes = true;
#else
constexpr bool kForSizes = false;
#endif

template <typename T>
struct Vec;

#if defined(__AVX512F__) && defined(KV_AVX2)

template <>
struct Vec<float> {
  static constexpr int kLanes = 16;
  static constexpr int kTileVectors = 2;
  static constexpr int kTileRows = 12;
  static constexpr int kWideRows = 12;  // of tiles that are two vectors wide
  __m512 v;
  static Vec Set(float x) { return {_mm512_set1_ps(x)}; }
  static Vec Load(const float* p) { return {_mm512_loadu_ps(p)}; }
  static __mmask16 Mask(int n) { return static_cast<__mmask16>((1u << n) - 1); }
  static Vec LoadN(const float* p, int n, float fill = 0) {
    return {_mm512_mask_loadu_ps(_mm512_set1_ps(fill), Mask(n), p)};
  }
  static Vec LoadHalf(const uint16_t* p) {
    return {_mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)))};
  }
  static Vec LoadBfloat(const uint16_t* p) {
    const __m256i h = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
    return {_mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(h), 16))};
  }
  void Store(float* p) const { _mm512_storeu_ps(p, v); }
  void StoreN(float* p, int n) const { _mm512_mask_storeu_ps(p, Mask(n), v); }
  void StoreHalf(uint16_t* p) const {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p),
                        _mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
  }
  friend Vec operator+(Vec a, Vec b) { return {_mm512_add_ps(a.v, b.v)}; }
  friend Vec operator-(Vec a, Vec b) { return {_mm512_sub_ps(a.v, b.v)}; }
  friend Vec operator*(Vec a, Vec b) { return {_mm512_mul_ps(a.v, b.v)}; }
  friend Vec operator/(Vec a, Vec b) { return {_mm512_div_ps(a.v, b.v)}; }
  static Vec Fma(Vec a, Vec b, Vec c) { return {_mm512_fmadd_ps(a.v, b.v, c.v)}; }
  // Max and Min return the second operand where either is NaN.
  static Vec Max(Vec a, Vec b) { return {_mm512_max_ps(a.v, b.v)}; }
  static Vec Min(Vec a, Vec b) { return {_mm512_min_ps(a.v, b.v)}; }
  // Returns x * 2^n; n is given as the low bits of `magic`, which is n + 1.5 * 2^23.
  static Vec Scale(Vec x, Vec magic) {
    return {_mm512_scalef_ps(x.v, _mm512_sub_ps(magic.v, _mm512_set1_ps(12582912.0f)))};
  }
};

template <>
struct Vec<double> {
  static constexpr int kLanes = 8;
  static constexpr int kTileVectors = 2;
  static constexpr int kTileRows = 12;
  __m512d v;
  static Vec Set(double x) { return {_mm512_set1_pd(x)}; }
  static Vec Load(const double* p) { return {_mm512_loadu_pd(p)}; }
  static __mmask8 Mask(int n) { return static_cast<__mmask8>((1u << n) - 1); }
  static Vec LoadN(const double* p, int n, double fill = 0) {
    return {_mm512_mask_loadu_pd(_mm512_set1_pd(fill), Mask(n), p)};
  }
  void Store(double* p) const { _mm512_storeu_pd(p, v); }
  void StoreN(double* p, int n) const { _mm512_mask_storeu_pd(p, Mask(n), v); }
  friend Vec operator+(Vec a, Vec b) { return {_mm512_add_pd(a.v, b.v)}; }
  friend Vec operator-(Vec a, Vec b) { return {_mm512_sub_pd(a.v, b.v)}; }
  friend Vec operator*(Vec a, Vec b) { return {_mm512_mul_pd(a.v, b.v)}; }
  friend Vec operator/(Vec a, Vec b) { return {_mm512_div_pd(a.v, b.v)}; }
  static Vec Fma(Vec a, Vec b, Vec c) { return {_mm512_fmadd_pd(a.v, b.v, c.v)}; }
  static Vec Max(Vec a, Vec b) { return {_mm512_max_pd(a.v, b.v)}; }
};

#elif defined(KV_AVX2)

template <>
struct Vec<float> {
  static constexpr int kLanes = 16;
  static constexpr int kTileVectors = 1;
  static constexpr int kTileRows = 6;
  static constexpr int kWideRows = 3;
  __m256 a, b;
  static Vec Set(float x) { return {_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
  static Vec Load(const float* p) { return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }
  static Vec LoadN(const float* p, int n, float fill = 0) {
    float t[16];
    for (int i = 0; i < 16; ++i) t[i] = i < n ? p[i] : fill;
    return Load(t);
  }
  static __m256 Half8(const uint16_t* p) {
    return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  }
  static __m256 Bfloat8(const uint16_t* p) {
    const __m128i h = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(h), 16));
  }
  static Vec LoadHalf(const uint16_t* p) { return {Half8(p), Half8(p + 8)}; }
  static Vec LoadBfloat(const uint16_t* p) { return {Bfloat8(p), Bfloat8(p + 8)}; }
  void Store(float* p) const {
    _mm256_storeu_ps(p, a);
    _mm256_storeu_ps(p + 8, b);
  }
  void StoreN(float* p, int n) const {
    float t[16];
    Store(t);
    std::memcpy(p, t, static_cast<size_t>(n) * sizeof(float));
  }
  void StoreHalf(uint16_t* p) const {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm256_cvtps_ph(a, _MM_FROUND_TO_NEAREST_INT));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p + 8),
                     _mm256_cvtps_ph(b, _MM_FROUND_TO_NEAREST_INT));
  }
  friend Vec operator+(Vec x, Vec y) { return {_mm256_add_ps(x.a, y.a), _mm256_add_ps(x.b, y.b)}; }
  friend Vec operator-(Vec x, Vec y) { return {_mm256_sub_ps(x.a, y.a), _mm256_sub_ps(x.b, y.b)}; }
  friend Vec operator*(Vec x, Vec y) { return {_mm256_mul_ps(x.a, y.a), _mm256_mul_ps(x.b, y.b)}; }
  friend Vec operator/(Vec x, Vec y) { return {_mm256_div_ps(x.a, y.a), _mm256_div_ps(x.b, y.b)}; }
  static Vec Fma(Vec x, Vec y, Vec z) {
    return {_mm256_fmadd_ps(x.a, y.a, z.a), _mm256_fmadd_ps(x.b, y.b, z.b)};
  }
  static Vec Max(Vec x, Vec y) { return {_mm256_max_ps(x.a, y.a), _mm256_max_ps(x.b, y.b)}; }
  static Vec Min(Vec x, Vec y) { return {_mm256_min_ps(x.a, y.a), _mm256_min_ps(x.b, y.b)}; }
  static __m256 Scale8(__m256 x, __m256 magic) {
    const __m256i n = _mm256_sub_epi32(_mm256_castps_si256(magic), _mm256_set1_epi32(0x4B400000));
    const __m256i half = _mm256_srai_epi32(n, 1), rest = _mm256_sub_epi32(n, half);
    const __m256i bias = _mm256_set1_epi32(127);
    x = _mm256_mul_ps(x, _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(half, bias), 23)));
    return _mm256_mul_ps(x,
                         _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(rest, bias), 23)));
  }
  static Vec Scale(Vec x, Vec magic) { return {Scale8(x.a, magic.a), Scale8(x.b, magic.b)}; }
};

template <>
struct Vec<double> {
  static constexpr int kLanes = 8;
  static constexpr int kTileVectors = 1;
  static constexpr int kTileRows = 6;
  __m256d a, b;
  static Vec Set(double x) { return {_mm256_set1_pd(x), _mm256_set1_pd(x)}; }
  static Vec Load(const double* p) { return {_mm256_loadu_pd(p), _mm256_loadu_pd(p + 4)}; }
  static Vec LoadN(const double* p, int n, double fill = 0) {
    double t[8];
    for (int i = 0; i < 8; ++i) t[i] = i < n ? p[i] : fill;
    return Load(t);
  }
  void Store(double* p) const {
    _mm256_storeu_pd(p, a);
    _mm256_storeu_pd(p + 4, b);
  }
  void StoreN(double* p, int n) const {
    double t[8];
    Store(t);
    std::memcpy(p, t, static_cast<size_t>(n) * sizeof(double));
  }
  friend Vec operator+(Vec x, Vec y) { return {_mm256_add_pd(x.a, y.a), _mm256_add_pd(x.b, y.b)}; }
  friend Vec operator-(Vec x, Vec y) { return {_mm256_sub_pd(x.a, y.a), _mm256_sub_pd(x.b, y.b)}; }
  friend Vec operator*(Vec x, Vec y) { return {_mm256_mul_pd(x.a, y.a), _mm256_mul_pd(x.b, y.b)}; }
  friend Vec operator/(Vec x, Vec y) { return {_mm256_div_pd(x.a, y.a), _mm256_div_pd(x.b, y.b)}; }
  static Vec Fma(Vec x, Vec y, Vec z) {
    return {_mm256_fmadd_pd(x.a, y.a, z.a), _mm256_fmadd_pd(x.b, y.b, z.b)};
  }
  static Vec Max(Vec x, Vec y) { return {_mm256_max_pd(x.a, y.a), _mm256_max_pd(x.b, y.b)}; }
};

#else

// Vectors of 16 bytes, which the compiler lowers where the processor has none. They compile faster
// than loops over 16 lanes.
template <typename T>
struct PlainVec {
  static constexpr int kLanes = sizeof(T) == 4 ? 16 : 8;
  static constexpr int kTileVectors = 1;
  static constexpr int kTileRows = 2;
  static constexpr int kWideRows = 2;
  using Quad [[gnu::vector_size(16)]] = T;
  static constexpr int kQuads = 4, kEach = kLanes / kQuads;
  Quad q[kQuads];
  using V = Vec<T>;
  template <typename F>
  static V Quads(F f) {
    V r;
    for (int i = 0; i < kQuads; ++i) r.q[i] = f(i);
    return r;
  }
  template <typename F>
  static V Make(F f) {
    T t[kLanes];
    for (int i = 0; i < kLanes; ++i) t[i] = f(i);
    return Load(t);
  }
  T Lane(int i) const { return q[i / kEach][i % kEach]; }
  static V Set(T x) {
    return Quads([&](int) { return Quad{} + x; });
  }
  static V Load(const T* p) {
    V r;
    std::memcpy(r.q, p, sizeof(r.q));
    return r;
  }
  static V LoadN(const T* p, int n, T fill = 0) {
    return Make([&](int i) { return i < n ? p[i] : fill; });
  }
  void Store(T* p) const { std::memcpy(p, q, sizeof(q)); }
  void StoreN(T* p, int n) const { std::memcpy(p, q, static_cast<size_t>(n) * sizeof(T)); }
  friend V operator+(const V& a, const V& b) {
    return Quads([&](int i) { return a.q[i] + b.q[i]; });
  }
  friend V operator-(const V& a, const V& b) {
    return Quads([&](int i) { return a.q[i] - b.q[i]; });
  }
  friend V operator*(const V& a, const V& b) {
    return Quads([&](int i) { return a.q[i] * b.q[i]; });
  }
  friend V operator/(const V& a, const V& b) {
    return Quads([&](int i) { return a.q[i] / b.q[i]; });
  }
  static V Fma(const V& a, const V& b, const V& c) {
#if defined(__FP_FAST_FMAF) && defined(__FP_FAST_FMA)
    return Make([&](int i) { return std::fma(a.Lane(i), b.Lane(i), c.Lane(i)); });
#else
    return Quads([&](int i) { return a.q[i] * b.q[i] + c.q[i]; });
#endif
  }
  static V Max(const V& a, const V& b) {
    return Quads([&](int i) { return a.q[i] > b.q[i] ? a.q[i] : b.q[i]; });
  }
  static V Min(const V& a, const V& b) {
    return Quads([&](int i) { return a.q[i] < b.q[i] ? a.q[i] : b.q[i]; });
  }
};

inline float PlainHalf(uint16_t h) {
  const uint32_t sign = (h & 0x8000u) << 16, mantissa = h & 0x3FFu, exponent = (h >> 10) & 31u;
  uint32_t bits;
  if (exponent == 31) {
    bits = sign | 0x7F800000u | (mantissa << 13) | (mantissa != 0 ? 0x400000u : 0);
  } else if (exponent != 0) {
    bits = sign | ((exponent + 112) << 23) | (mantissa << 13);
  } else {
    const float value = static_cast<float>(mantissa) * 5.9604644775390625e-8f;
    std::memcpy(&bits, &value, 4);
    bits |= sign;
  }
  float f;
  std::memcpy(&f, &bits, 4);
  return f;
}

inline uint16_t PlainToHalf(float f) {
  uint32_t bits;
  std::memcpy(&bits, &f, 4);
  const uint32_t sign = (bits >> 16) & 0x8000u;
  bits &= 0x7FFFFFFFu;
  if (bits > 0x7F800000u) return static_cast<uint16_t>(sign | 0x7E00u | ((bits >> 13) & 0x3FFu));
  if (bits >= 0x477FF000u) return static_cast<uint16_t>(sign | 0x7C00u);
  if (bits < 0x38800000u) {
    // Adding 0.5 leaves the subnormal half, rounded to even, in the low bits.
    float value;
    std::memcpy(&value, &bits, 4);
    value += 0.5f;
    std::memcpy(&bits, &value, 4);
    return static_cast<uint16_t>(sign | (bits - 0x3F000000u));
  }
  bits += 0xC8000FFFu + ((bits >> 13) & 1u);
  return static_cast<uint16_t>(sign | (bits >> 13));
}

template <>
struct Vec<float> : PlainVec<float> {
  static Vec LoadHalf(const uint16_t* p) {
    return Make([&](int i) { return PlainHalf(p[i]); });
  }
  static Vec LoadBfloat(const uint16_t* p) {
    return Make([&](int i) {
      const uint32_t bits = static_cast<uint32_t>(p[i]) << 16;
      float f;
      std::memcpy(&f, &bits, 4);
      return f;
    });
  }
  void StoreHalf(uint16_t* p) const {
    for (int i = 0; i < kLanes; ++i) p[i] = PlainToHalf(Lane(i));
  }
  static Vec Scale(Vec x, Vec magic) {
    return Make([&](int i) {
      const float shifted = magic.Lane(i);
      uint32_t m;
      std::memcpy(&m, &shifted, 4);
      const int32_t n = static_cast<int32_t>(m - 0x4B400000u);
      const uint32_t half = static_cast<uint32_t>((n >> 1) + 127) << 23;
      const uint32_t rest = static_cast<uint32_t>(n - (n >> 1) + 127) << 23;
      float a, b;
      std::memcpy(&a, &half, 4);
      std::memcpy(&b, &rest, 4);
      return x.Lane(i) * a * b;
    });
  }
};

template <>
struct Vec<double> : PlainVec<double> {};

#endif

// exp, exact to 1 ulp: x = n ln2 + r with |r| <= ln2 / 2, a polynomial of degree 7 in r, times 2^n.
// The result is 0 below -104 (so -inf gives exactly 0), inf above 88.73, and NaN for NaN.
inline Vec<float> Exp(Vec<float> x) {
  using V = Vec<float>;
  x = V::Min(V::Set(89.0f), V::Max(V::Set(-104.0f), x));
  const V magic = V::Fma(x, V::Set(1.44269504f), V::Set(12582912.0f));
  const V n = magic - V::Set(12582912.0f);
  V r = V::Fma(n, V::Set(-0.693359375f), x);
  r = V::Fma(n, V::Set(2.12194440e-4f), r);
  V p = V::Set(1.0f / 5040);
  for (float c : {1.0f / 720, 1.0f / 120, 1.0f / 24, 1.0f / 6, 0.5f, 1.0f, 1.0f}) {
    p = V::Fma(p, r, V::Set(c));
  }
  return V::Scale(p, magic);
}

inline Vec<double> Exp(Vec<double> x) {
  double t[8];
  x.Store(t);
  for (double& e : t) e = std::exp(e);
  return Vec<double>::Load(t);
}

}  // namespace
}  // namespace kvlift::exec
