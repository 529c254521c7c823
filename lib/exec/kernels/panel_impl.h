// The primitives of PanelOps written on Vec; included by gemm_impl.h, once per instruction set.
#pragma once

#include <algorithm>
#include <cstdint>

#include "exec/kernels/gemm_isa.h"
#include "exec/kernels/gemm_simd.h"

namespace kvlift::exec {
namespace {

// What lies this many bytes ahead in a panel is asked for while a row of it is used.
constexpr int64_t kPrefetchBytes = 2048;

struct FloatPanel {
  using Element = float;
  static Vec<float> Load(const float* p) { return Vec<float>::Load(p); }
};
struct HalfPanel {
  using Element = uint16_t;
  static Vec<float> Load(const uint16_t* p) { return Vec<float>::LoadHalf(p); }
};
struct BfloatPanel {
  using Element = uint16_t;
  static Vec<float> Load(const uint16_t* p) { return Vec<float>::LoadBfloat(p); }
};

// c[M, n] over k for n <= NV * lanes; a is [k][M], b has rows of kPanel elements.
template <typename Loader, int M, int NV>
void PanelTileBody(int n, int64_t k, const float* a, const typename Loader::Element* b, float* c,
                   int64_t ldc, bool accumulate) {
  using V = Vec<float>;
  constexpr int L = V::kLanes, W = VectorOps<float>::kPanel;
  using Element = typename Loader::Element;
  V acc[M][NV];
  for (int i = 0; i < M; ++i) {
    for (int j = 0; j < NV; ++j) {
      const float* from = c + i * ldc + j * L;
      const int width = n - j * L;
      acc[i][j] = !accumulate || width <= 0 ? V::Set(0)
                  : width >= L              ? V::Load(from)
                                            : V::LoadN(from, width);
    }
  }
  constexpr int64_t kAhead = kPrefetchBytes / static_cast<int64_t>(sizeof(Element));
  for (int64_t p = 0; p < k; ++p) {
    V row[NV];
#pragma GCC unroll 4
    for (int j = 0; j < NV; ++j) row[j] = Loader::Load(b + j * L);
#pragma GCC unroll 4
    for (int j = 0; j < W * static_cast<int>(sizeof(Element)); j += 64) {
      __builtin_prefetch(reinterpret_cast<const char*>(b + kAhead) + j);
    }
#pragma GCC unroll 16
    for (int i = 0; i < M; ++i) {
      const V x = V::Set(a[i]);
#pragma GCC unroll 4
      for (int j = 0; j < NV; ++j) acc[i][j] = V::Fma(x, row[j], acc[i][j]);
    }
    a += M;
    b += W;
  }
  for (int i = 0; i < M; ++i) {
    for (int j = 0; j < NV; ++j) {
      float* to = c + i * ldc + j * L;
      const int width = n - j * L;
      if (width >= L) {
        acc[i][j].Store(to);
      } else if (width > 0) {
        acc[i][j].StoreN(to, width);
      }
    }
  }
}

template <typename Loader, int M>
void PanelTileRows(int n, int64_t k, const float* a, const typename Loader::Element* b, float* c,
                   int64_t ldc, bool accumulate) {
  using V = Vec<float>;
  constexpr int L = V::kLanes;
  if constexpr (M <= V::kWideRows) {
    PanelTileBody<Loader, M, 2>(n, k, a, b, c, ldc, accumulate);
  } else {
    PanelTileBody<Loader, M, 1>(std::min(n, L), k, a, b, c, ldc, accumulate);
    if (n > L) PanelTileBody<Loader, M, 1>(n - L, k, a, b + L, c + L, ldc, accumulate);
  }
}

template <typename Loader, int M = Vec<float>::kTileRows>
void PanelTileAs(int m, int n, int64_t k, const float* a, const void* b, float* c, int64_t ldc,
                 bool accumulate) {
  if constexpr (M > 0) {
    if (m == M) {
      PanelTileRows<Loader, M>(n, k, a, static_cast<const typename Loader::Element*>(b), c, ldc,
                               accumulate);
    } else {
      PanelTileAs<Loader, M - 1>(m, n, k, a, b, c, ldc, accumulate);
    }
  }
}

inline void PanelTile(Storage storage, int m, int n, int64_t k, const float* a, const void* b,
                      float* c, int64_t ldc, bool accumulate) {
  switch (storage) {
    case Storage::kNative:
      return PanelTileAs<FloatPanel>(m, n, k, a, b, c, ldc, accumulate);
    case Storage::kHalf:
      return PanelTileAs<HalfPanel>(m, n, k, a, b, c, ldc, accumulate);
    case Storage::kBfloat:
      return PanelTileAs<BfloatPanel>(m, n, k, a, b, c, ldc, accumulate);
  }
}

}  // namespace
}  // namespace kvlift::exec
