// Products of int8 rows with weights of 2, 4 or 8 bits by byte dot products. This file is compiled
// with the flags of that instruction set; where the compiler does not support it, the functions are
// absent.
#if defined(__GNUC__) && !defined(__clang__)
// GCC 12 warns about a deliberately undefined operand inside its own intrinsics.
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#endif
#include "exec/kernels/products/bits_impl.h"
#include "exec/kernels/products/bits_quantize.h"

namespace kvlift::exec {

#if defined(__AVX512VNNI__) && defined(KV_AVX2)
namespace {

template <int BITS, int M, int P>
void DotBody(const BitsLayout& layout, const DotRows& a, const std::byte* data, int64_t panel_bytes,
             float* c) {
  constexpr int NV = P * kBitsVectors, kRows = 32 / BITS, kParts = 8 / BITS;
  constexpr int64_t kAhead = 4096;
  const __m512i mask = _mm512_set1_epi8(static_cast<char>((1 << BITS) - 1));
  __m512 acc[M][NV];
#pragma GCC unroll 4
  for (int i = 0; i < M; ++i) {
#pragma GCC unroll 4
    for (int v = 0; v < NV; ++v) acc[i][v] = _mm512_setzero_ps();
  }
  const int64_t row_bytes = a.blocks * layout.block;
  for (int64_t b = 0; b < a.blocks; ++b, data += layout.block_bytes) {
    __m512i sum[M][NV];
#pragma GCC unroll 4
    for (int i = 0; i < M; ++i) {
#pragma GCC unroll 4
      for (int v = 0; v < NV; ++v) sum[i][v] = _mm512_setzero_si512();
    }
    const int8_t* codes = a.codes + b * layout.block;
    const std::byte* line = data;
    for (int64_t p = 0; p < layout.block; p += kRows, line += kBitsWidth * 4) {
      __m512i words[NV];
#pragma GCC unroll 4
      for (int v = 0; v < NV; ++v) {
        const std::byte* at = line + v / kBitsVectors * panel_bytes + v % kBitsVectors * 64;
        words[v] = _mm512_loadu_si512(at);
        __builtin_prefetch(at + kAhead);
      }
#pragma GCC unroll 4
      for (int part = 0; part < kParts; ++part) {
        __m512i four[NV];
#pragma GCC unroll 4
        for (int v = 0; v < NV; ++v) {
          four[v] = BITS == 8 ? words[v] : _mm512_and_si512(words[v], mask);
          if (part + 1 < kParts) words[v] = _mm512_srli_epi32(words[v], BITS);
        }
#pragma GCC unroll 4
        for (int i = 0; i < M; ++i) {
          int32_t x;
          std::memcpy(&x, codes + i * row_bytes + p + part * 4, 4);
          const __m512i spread = _mm512_set1_epi32(x);
#pragma GCC unroll 4
          for (int v = 0; v < NV; ++v) {
            sum[i][v] = _mm512_dpbusd_epi32(sum[i][v], four[v], spread);
          }
        }
      }
    }
    BlockScales<P> block;
    block.Load(layout, data, panel_bytes);
#pragma GCC unroll 4
    for (int i = 0; i < M; ++i) {
      const __m512 scale = _mm512_set1_ps(a.scales[i * a.blocks + b]);
      const __m512 total = _mm512_set1_ps(a.sums[i * a.blocks + b]);
#pragma GCC unroll 4
      for (int v = 0; v < NV; ++v) {
        const __m512 centred =
            _mm512_fnmadd_ps(block.zero[v].v, total, _mm512_cvtepi32_ps(sum[i][v]));
        acc[i][v] = _mm512_fmadd_ps(centred, _mm512_mul_ps(block.scale[v].v, scale), acc[i][v]);
      }
    }
  }
#pragma GCC unroll 4
  for (int i = 0; i < M; ++i) {
#pragma GCC unroll 4
    for (int v = 0; v < NV; ++v) {
      _mm512_storeu_ps(c + i * P * kBitsWidth + v * 16, acc[i][v]);
    }
  }
}

template <int BITS, int P>
void DotRowsOf(const BitsLayout& layout, int m, const DotRows& a, const std::byte* data,
               int64_t panel_bytes, float* c) {
  switch (m) {
    case 1:
      return DotBody<BITS, 1, P>(layout, a, data, panel_bytes, c);
    case 2:
      return DotBody<BITS, 2, P>(layout, a, data, panel_bytes, c);
    case 3:
      return DotBody<BITS, 3, P>(layout, a, data, panel_bytes, c);
    default:
      return DotBody<BITS, 4, P>(layout, a, data, panel_bytes, c);
  }
}

void Dot(const BitsLayout& layout, int m, int panels, const DotRows& a, const std::byte* data,
         int64_t panel_bytes, float* c) {
  WithBits(layout, [&](auto bits, auto) {
    constexpr int kBits = decltype(bits)::value;
    if (m == 1 && panels == 2) {
      // One stream of memory, as the two panels are adjacent.
      DotBody<kBits, 1, 1>(layout, a, data, panel_bytes, c);
      DotBody<kBits, 1, 1>(layout, a, data + panel_bytes, panel_bytes, c + kBitsWidth);
    } else if (panels == 1) {
      DotRowsOf<kBits, 1>(layout, m, a, data, panel_bytes, c);
    } else {
      DotRowsOf<kBits, 2>(layout, m, a, data, panel_bytes, c);
    }
  });
}

void Quantize(const float* x, int64_t n, int8_t* codes, float* scale, float* sum) {
  __m512 most = _mm512_setzero_ps();
  for (int64_t i = 0; i < n; i += 16) {
    most = _mm512_max_ps(most, _mm512_abs_ps(_mm512_loadu_ps(x + i)));
  }
  const float largest = _mm512_reduce_max_ps(most);
  const __m512 up = _mm512_set1_ps(largest > 0 ? 127.0f / largest : 0.0f);
  __m512i total = _mm512_setzero_si512();
  for (int64_t i = 0; i < n; i += 16) {
    const __m512i code = _mm512_cvtps_epi32(_mm512_mul_ps(_mm512_loadu_ps(x + i), up));
    total = _mm512_add_epi32(total, code);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(codes + i), _mm512_cvtsepi32_epi8(code));
  }
  *scale = largest / 127.0f;
  *sum = static_cast<float>(_mm512_reduce_add_epi32(total));
}

}  // namespace

BitsDotFn VnniBitsDot() { return Dot; }
QuantizeFn VnniQuantize() { return Quantize; }
#else
BitsDotFn VnniBitsDot() { return nullptr; }
QuantizeFn VnniQuantize() { return nullptr; }
#endif

}  // namespace kvlift::exec
