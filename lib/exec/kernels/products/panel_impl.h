// The primitives of PanelOps written on Vec; included by gemm_impl.h, once per instruction set.
#pragma once

#include <algorithm>
#include <cstdint>

#include "exec/kernels/common/gemm_isa.h"
#include "exec/kernels/common/gemm_simd.h"

namespace kvlift::exec {
namespace {

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

// Computes c[M, NV vectors] over k; a is [k][M], b has rows of kPanel elements. While a row of b is
// used, a row at `ahead` is prefetched, which moves by ahead_step bytes: into the first-level cache
// if rows are few, but into the second-level one for a single row of floats, which is faster.
template <typename Loader, int M, int NV>
void PanelTileBody(int64_t k, const float* a, const typename Loader::Element* b, float* c,
                   int64_t ldc, bool accumulate, const char* ahead, int64_t ahead_step) {
  using V = Vec<float>;
  constexpr int L = V::kLanes, W = VectorOps<float>::kPanel;
  constexpr int kLevel = M <= 8 && (M > 1 || sizeof(*b) == 2) ? 3 : 2;
  V acc[M][NV];
#pragma GCC unroll 16
  for (int i = 0; i < M; ++i) {
#pragma GCC unroll 4
    for (int j = 0; j < NV; ++j) acc[i][j] = accumulate ? V::Load(c + i * ldc + j * L) : V::Set(0);
  }
  for (int64_t p = 0; p < k; ++p) {
    V row[NV];
#pragma GCC unroll 4
    for (int j = 0; j < NV; ++j) row[j] = Loader::Load(b + j * L);
    __builtin_prefetch(ahead, 0, kLevel);
    if (sizeof(*b) == 4) __builtin_prefetch(ahead + 64, 0, kLevel);
    ahead += ahead_step;
#pragma GCC unroll 16
    for (int i = 0; i < M; ++i) {
      const V x = V::Set(a[i]);
#pragma GCC unroll 4
      for (int j = 0; j < NV; ++j) acc[i][j] = V::Fma(x, row[j], acc[i][j]);
    }
    a += M;
    b += W;
  }
#pragma GCC unroll 16
  for (int i = 0; i < M; ++i) {
#pragma GCC unroll 4
    for (int j = 0; j < NV; ++j) acc[i][j].Store(c + i * ldc + j * L);
  }
}

// Computes c[M, kPanel].
template <typename Loader, int M>
void PanelTileRows(int64_t k, const float* a, const typename Loader::Element* b, float* c,
                   int64_t ldc, bool accumulate, const char* ahead, int64_t ahead_step) {
  using V = Vec<float>;
  constexpr int L = V::kLanes;
  if constexpr (M <= V::kWideRows) {
    PanelTileBody<Loader, M, 2>(k, a, b, c, ldc, accumulate, ahead, ahead_step);
  } else {
    PanelTileBody<Loader, M, 1>(k, a, b, c, ldc, accumulate, ahead, ahead_step);
    PanelTileBody<Loader, M, 1>(k, a, b + L, c + L, ldc, accumulate, ahead, ahead_step);
  }
}

template <typename Loader, int M = Vec<float>::kTileRows>
void PanelTileAs(int m, int n, int64_t k, const float* a, const void* b, float* c, int64_t ldc,
                 bool accumulate, const char* ahead, int64_t ahead_step) {
  if constexpr (M > 0) {
    if (m != M) {
      PanelTileAs<Loader, M - 1>(m, n, k, a, b, c, ldc, accumulate, ahead, ahead_step);
      return;
    }
    constexpr int W = VectorOps<float>::kPanel;
    const auto* panel = static_cast<const typename Loader::Element*>(b);
    if (n == W) {
      PanelTileRows<Loader, M>(k, a, panel, c, ldc, accumulate, ahead, ahead_step);
      return;
    }
    float whole[M * W];
    for (int i = 0; i < M && accumulate; ++i) std::copy_n(c + i * ldc, n, whole + i * W);
    PanelTileRows<Loader, M>(k, a, panel, whole, W, accumulate, ahead, ahead_step);
    for (int i = 0; i < M; ++i) std::copy_n(whole + i * W, n, c + i * ldc);
  }
}

inline void PanelTile(Storage storage, int m, int n, int64_t k, const float* a, const void* b,
                      float* c, int64_t ldc, bool accumulate, const void* prefetch, int64_t step) {
  const auto* ahead = static_cast<const char*>(prefetch);
  switch (storage) {
    case Storage::kNative:
      return PanelTileAs<FloatPanel>(m, n, k, a, b, c, ldc, accumulate, ahead, step);
    case Storage::kHalf:
      return PanelTileAs<HalfPanel>(m, n, k, a, b, c, ldc, accumulate, ahead, step);
    case Storage::kBfloat:
      return PanelTileAs<BfloatPanel>(m, n, k, a, b, c, ldc, accumulate, ahead, step);
  }
}

}  // namespace
}  // namespace kvlift::exec
