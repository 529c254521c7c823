// The primitives of BitsOps written on Vec; included by gemm_impl.h, once per instruction set.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>

#include "exec/kernels/common/bits_isa.h"
#include "exec/kernels/common/gemm_isa.h"
#include "exec/kernels/common/gemm_simd.h"

namespace kvlift::exec {
namespace {

constexpr int kBitsWidth = VectorOps<float>::kPanel;
constexpr int kBitsVectors = kBitsWidth / Vec<float>::kLanes;

constexpr int BitsShift(int bits, int t) { return 8 * (t % 4) + bits * (t / 4); }

// Decodes sixteen words of codes. Where kZeroInTable, the zero points of the middle are part of
// Decoder<BITS, false>.
#if defined(__AVX512F__) && defined(KV_AVX2)

constexpr bool kZeroInTable = true;

struct Words {
  __m512i v;
  static Words Load(const std::byte* p) { return {_mm512_loadu_si512(p)}; }
};

template <int BITS, bool kZero>
struct Decoder {
  static constexpr bool kSubtract = kZero || BITS == 8;
  __m512 table;
  Decoder() {
    constexpr int kCodes = BITS == 8 ? 1 : 1 << BITS;
    float t[16];
    for (int i = 0; i < 16; ++i) {
      t[i] = static_cast<float>(i % kCodes - (kZero ? 0 : 1 << (BITS - 1)));
    }
    table = _mm512_loadu_ps(t);
  }
  template <int T>
  Vec<float> Code(Words w) const {
    const __m512i shifted = _mm512_srli_epi32(w.v, BitsShift(BITS, T));
    if constexpr (BITS == 8) {
      return {_mm512_cvtepi32_ps(_mm512_and_si512(shifted, _mm512_set1_epi32(255)))};
    } else {
      return {_mm512_permutexvar_ps(shifted, table)};  // only four bits of each index are read
    }
  }
};

#elif defined(KV_AVX2)

constexpr bool kZeroInTable = false;

struct Words {
  __m256i a, b;
  static Words Load(const std::byte* p) {
    const auto* q = reinterpret_cast<const __m256i*>(p);
    return {_mm256_loadu_si256(q), _mm256_loadu_si256(q + 1)};
  }
};

template <int BITS, bool kZero>
struct Decoder {
  static constexpr bool kSubtract = true;
  template <int T>
  static __m256 Code8(__m256i v) {
    const __m256i mask = _mm256_set1_epi32((1 << BITS) - 1);
    return _mm256_cvtepi32_ps(_mm256_and_si256(_mm256_srli_epi32(v, BitsShift(BITS, T)), mask));
  }
  template <int T>
  Vec<float> Code(Words w) const {
    return {Code8<T>(w.a), Code8<T>(w.b)};
  }
};

#else

constexpr bool kZeroInTable = false;

struct Words {
  using Quad [[gnu::vector_size(16)]] = uint32_t;
  Quad q[4];
  static Words Load(const std::byte* p) {
    Words w;
    std::memcpy(w.q, p, sizeof(w.q));
    return w;
  }
};

template <int BITS, bool kZero>
struct Decoder {
  static constexpr bool kSubtract = true;
  template <int T>
  Vec<float> Code(const Words& w) const {
    using Signed [[gnu::vector_size(16)]] = int32_t;  // converted by one instruction
    return Vec<float>::Quads([&](int i) {
      const Words::Quad code = (w.q[i] >> BitsShift(BITS, T)) & ((1u << BITS) - 1);
      return __builtin_convertvector(reinterpret_cast<Signed>(code), Vec<float>::Quad);
    });
  }
};

#endif

inline Vec<float> LoadAs(Storage storage, const std::byte* p, int vector) {
  const int i = vector * Vec<float>::kLanes;
  if (storage == Storage::kHalf) {
    return Vec<float>::LoadHalf(reinterpret_cast<const uint16_t*>(p) + i);
  }
  if (storage == Storage::kBfloat) {
    return Vec<float>::LoadBfloat(reinterpret_cast<const uint16_t*>(p) + i);
  }
  return Vec<float>::Load(reinterpret_cast<const float*>(p) + i);
}

// The scales and zero points of one block of P panels.
template <int P>
struct BlockScales {
  Vec<float> scale[P * kBitsVectors], zero[P * kBitsVectors];

  void Load(const BitsLayout& layout, const std::byte* data, int64_t panel_bytes) {
    const Vec<float> middle = Vec<float>::Set(static_cast<float>(1 << (layout.bits - 1)));
#pragma GCC unroll 4
    for (int v = 0; v < P * kBitsVectors; ++v) {
      const std::byte* block = data + v / kBitsVectors * panel_bytes;
      const int i = v % kBitsVectors;
      scale[v] = LoadAs(layout.scale, block + layout.scale_offset, i);
      zero[v] = layout.has_zero ? LoadAs(layout.zero, block + layout.zero_offset, i) : middle;
    }
  }
};

// Calls f(t, v, weight) for the rows t of one line of words, in rising order.
template <int BITS, bool kZero, int P, typename F, int... T>
inline __attribute__((always_inline)) void ForEachRow(const Decoder<BITS, kZero>& decoder,
                                                      const Words (&words)[P * kBitsVectors],
                                                      const BlockScales<P>& block, const F& f,
                                                      std::integer_sequence<int, T...>) {
  const auto row = [&](auto tag) __attribute__((always_inline)) {
    constexpr int t = decltype(tag)::value;
    Vec<float> w[P * kBitsVectors];
#pragma GCC unroll 4
    for (int v = 0; v < P * kBitsVectors; ++v) {
      w[v] = decoder.template Code<t>(words[v]);
      if constexpr (Decoder<BITS, kZero>::kSubtract) w[v] = w[v] - block.zero[v];
      w[v] = w[v] * block.scale[v];
    }
    f(t, w);
  };
  (row(std::integral_constant<int, T>()), ...);
}

// kSome: a holds `m` rows, of which the first M are multiplied; otherwise M rows.
template <int BITS, bool kZero, int M, int P, bool kSome = false>
void BitsStreamBody(const BitsLayout& layout, int m, int64_t k, const float* a,
                    const std::byte* data, int64_t panel_bytes, float* c) {
  using V = Vec<float>;
  constexpr int NV = P * kBitsVectors, L = V::kLanes, kRows = 32 / BITS;
  constexpr int64_t kAhead = 2048;
  const int64_t step = kSome ? m : M;
  const Decoder<BITS, kZero> decoder;
  V acc[M][NV];
#pragma GCC unroll 4
  for (int i = 0; i < M; ++i) {
#pragma GCC unroll 4
    for (int v = 0; v < NV; ++v) acc[i][v] = V::Set(0);
  }
  for (int64_t k0 = 0; k0 < k; k0 += layout.block, data += layout.block_bytes) {
    BlockScales<P> block;
    block.Load(layout, data, panel_bytes);
    const int64_t end = std::min(layout.block, k - k0);
    const std::byte* line = data;
    for (int64_t p = 0; p < end; p += kRows, line += kBitsWidth * 4) {
      Words words[NV];
#pragma GCC unroll 4
      for (int v = 0; v < NV; ++v) {
        const std::byte* at = line + v / kBitsVectors * panel_bytes + v % kBitsVectors * L * 4;
        words[v] = Words::Load(at);
        __builtin_prefetch(at + kAhead);
      }
      ForEachRow<BITS, kZero, P>(
          decoder, words, block,
          [&](int t, const V(&w)[NV]) __attribute__((always_inline)) {
#pragma GCC unroll 4
            for (int i = 0; i < M; ++i) {
              const V x = V::Set(a[t * step + i]);
#pragma GCC unroll 4
              for (int v = 0; v < NV; ++v) acc[i][v] = V::Fma(x, w[v], acc[i][v]);
            }
          },
          std::make_integer_sequence<int, kRows>());
      a += kRows * step;
    }
  }
#pragma GCC unroll 4
  for (int i = 0; i < M; ++i) {
#pragma GCC unroll 4
    for (int v = 0; v < NV; ++v) acc[i][v].Store(c + i * P * kBitsWidth + v * L);
  }
}

template <int BITS, bool kZero>
void BitsStreamAs(const BitsLayout& layout, int m, int panels, int64_t k, const float* a,
                  const std::byte* data, int64_t panel_bytes, float* c) {
  if constexpr (!kForSizes) {
    for (int i = 0; i < m * panels; ++i) {
      BitsStreamBody<BITS, kZero, 1, 1, true>(layout, m, k, a + i / panels,
                                              data + i % panels * panel_bytes, panel_bytes,
                                              c + i * kBitsWidth);
    }
    return;
  }
  const auto run = [&](auto body) { body(layout, m, k, a, data, panel_bytes, c); };
  if (panels == 1) {
    switch (m) {
      case 1:
        return run(BitsStreamBody<BITS, kZero, 1, 1>);
      case 2:
        return run(BitsStreamBody<BITS, kZero, 2, 1>);
      case 3:
        return run(BitsStreamBody<BITS, kZero, 3, 1>);
      default:
        return run(BitsStreamBody<BITS, kZero, 4, 1>);
    }
  }
  switch (m) {
    case 1:
      return run(BitsStreamBody<BITS, kZero, 1, 2>);
    case 2:
      return run(BitsStreamBody<BITS, kZero, 2, 2>);
    case 3:
      return run(BitsStreamBody<BITS, kZero, 3, 2>);
    default:
      return run(BitsStreamBody<BITS, kZero, 4, 2>);
  }
}

template <int BITS, bool kZero>
void BitsExpandAs(const BitsLayout& layout, int64_t k0, int64_t k, const std::byte* data,
                  float* out) {
  using V = Vec<float>;
  constexpr int NV = kBitsVectors, L = V::kLanes, kRows = 32 / BITS;
  const Decoder<BITS, kZero> decoder;
  for (int64_t p = k0; p < k0 + k;) {
    const std::byte* at = data + p / layout.block * layout.block_bytes;
    BlockScales<1> block;
    block.Load(layout, at, 0);
    const int64_t in = p % layout.block, end = std::min(k0 + k, p - in + layout.block);
    const std::byte* line = at + in / kRows * kBitsWidth * 4;
    for (; p < end; p += kRows, line += kBitsWidth * 4) {
      Words words[NV];
#pragma GCC unroll 4
      for (int v = 0; v < NV; ++v) words[v] = Words::Load(line + v * L * 4);
      ForEachRow<BITS, kZero, 1>(
          decoder, words, block,
          [&](int t, const V(&w)[NV]) __attribute__((always_inline)) {
#pragma GCC unroll 4
            for (int v = 0; v < NV; ++v) w[v].Store(out + t * kBitsWidth + v * L);
          },
          std::make_integer_sequence<int, kRows>());
      out += kRows * kBitsWidth;
    }
  }
}

// Calls f with `bits` as a constant, and `has_zero` where decoders differ by it.
template <typename F>
void WithBits(const BitsLayout& layout, const F& f) {
  const auto with = [&](auto bits) {
    if constexpr (kZeroInTable) {
      if (!layout.has_zero) return f(bits, std::false_type());
    }
    f(bits, std::true_type());
  };
  if (layout.bits == 2) {
    with(std::integral_constant<int, 2>());
  } else if (layout.bits == 4) {
    with(std::integral_constant<int, 4>());
  } else {
    with(std::integral_constant<int, 8>());
  }
}

inline void BitsStream(const BitsLayout& layout, int m, int panels, int64_t k, const float* a,
                       const std::byte* data, int64_t panel_bytes, float* c) {
  WithBits(layout, [&](auto bits, auto zero) {
    BitsStreamAs<decltype(bits)::value, decltype(zero)::value>(layout, m, panels, k, a, data,
                                                               panel_bytes, c);
  });
}

inline void BitsExpand(const BitsLayout& layout, int64_t k0, int64_t k, const std::byte* data,
                       float* out) {
  WithBits(layout, [&](auto bits, auto zero) {
    BitsExpandAs<decltype(bits)::value, decltype(zero)::value>(layout, k0, k, data, out);
  });
}

}  // namespace
}  // namespace kvlift::exec
