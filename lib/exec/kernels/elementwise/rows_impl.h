// Arithmetic on rows for the instruction set that the including file is compiled for; see
// gemm_simd.h.
#pragma once

#include <initializer_list>

#include "exec/kernels/common/gemm_simd.h"
#include "exec/kernels/elementwise/rows_isa.h"

namespace kvlift::exec {
namespace {

template <typename F>
void RowMap(const float* a, int step_a, const float* b, int step_b, int64_t n, float* y) {
  using V = Vec<float>;
  constexpr int64_t L = V::kLanes;
  if (n == 1) {
    *y = F()(*a, *b);
    return;
  }
  const V one_a = V::Set(*a), one_b = V::Set(*b);
  int64_t i = 0;
  for (; i + L <= n; i += L) {
    const V x = step_a != 0 ? V::Load(a + i) : one_a;
    F()(x, step_b != 0 ? V::Load(b + i) : one_b).Store(y + i);
  }
  if (i == n) return;
  const int rest = static_cast<int>(n - i);
  const V x = step_a != 0 ? V::LoadN(a + i, rest, 1) : one_a;
  F()(x, step_b != 0 ? V::LoadN(b + i, rest, 1) : one_b).StoreN(y + i, rest);
}

struct RowAdd {
  template <typename T>
  T operator()(T a, T b) const {
    return a + b;
  }
};
struct RowSub {
  template <typename T>
  T operator()(T a, T b) const {
    return a - b;
  }
};
struct RowMul {
  template <typename T>
  T operator()(T a, T b) const {
    return a * b;
  }
};
struct RowDiv {
  template <typename T>
  T operator()(T a, T b) const {
    return a / b;
  }
};

// Works in pieces of a fixed length, which compilers turn into vectors.
inline void RowNeg(const float* x, int64_t n, float* y) {
  constexpr int64_t kPiece = 16;
  int64_t i = 0;
  for (; i + kPiece <= n; i += kPiece) {
    float t[kPiece];
    for (int64_t j = 0; j < kPiece; ++j) t[j] = -x[i + j];
    std::memcpy(y + i, t, sizeof(t));
  }
  for (; i < n; ++i) y[i] = -x[i];
}

constexpr RowTable MakeRowTable() {
  return {RowMap<RowAdd>, RowMap<RowSub>, RowMap<RowMul>, RowMap<RowDiv>, RowNeg};
}

}  // namespace
}  // namespace kvlift::exec
