// Matrix products in the canonical order of gemm_isa.h: every element of c is one chain over k, for
// any number of rows or threads.
#pragma once

#include <cstdint>

#include "exec/kernels/common/gemm_isa.h"
#include "exec/kernels/common/math_util.h"

namespace kvlift::exec {

// Sets c[m, n] to a[m, k] * b[k, n], for T float or double. Strides are in elements; the columns of
// c are contiguous.
template <typename T>
struct Product {
  int64_t m = 0, n = 0, k = 0;
  const T* a = nullptr;
  int64_t a_row = 0, a_k = 1;
  const void* b = nullptr;  // elements of `storage`; kNative is T
  Storage storage = Storage::kNative;
  int64_t b_k = 0, b_column = 1;
  T* c = nullptr;
  int64_t c_row = 0;
};

template <typename T>
void Multiply(const Product<T>& product, int threads);

extern template void Multiply<float>(const Product<float>&, int);
extern template void Multiply<double>(const Product<double>&, int);

template <typename T>
constexpr Storage StorageOf() {
  if (std::is_same_v<T, math::Half>) return Storage::kHalf;
  if (std::is_same_v<T, math::Bfloat>) return Storage::kBfloat;
  return Storage::kNative;
}

}  // namespace kvlift::exec
