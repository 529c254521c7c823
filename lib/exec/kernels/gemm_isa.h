// The vector primitives of all floating-point kernels, one table per instruction set, chosen once
// per process. They fix the order of every sum:
//   dot products  one chain acc = fma(a[k], b[k], acc) in rising k, starting from 0;
//   row sums      16 lanes (8 for double), element i into lane i mod 16, then a fixed tree.
// So no result depends on the number of rows, on the batch, on threads, or on trailing zeros, and
// the AVX2 and AVX-512 tables give the same bits.
#pragma once

#include <cstdint>

#include "exec/kernels/bits_isa.h"

namespace kvlift::exec {

// Primitives for one compute type T (float or double).
template <typename T>
struct VectorOps {
  static constexpr int kPanel = sizeof(T) == 4 ? 32 : 16;  // columns of a packed panel
  static constexpr int kStreamRows = 8;

  int max_rows;  // of Tile
  // c[m, n] = a[m, k] * b[k, n], added to c's old value if `accumulate`. m <= max_rows,
  // n <= kPanel; element (i, p) of a is a[i * a_row + p * a_k]; rows of b and c are ldb, ldc apart.
  void (*tile)(int m, int n, int64_t k, const T* a, int64_t a_row, int64_t a_k, const T* b,
               int64_t ldb, T* c, int64_t ldc, bool accumulate);
  // The same for m <= kStreamRows and any n, reading each row of b once and in order; a has k
  // contiguous. b holds elements of `storage` (kNative: T).
  void (*stream)(int m, int64_t n, int64_t k, const T* a, int64_t lda, const void* b,
                 Storage storage, int64_t ldb, T* c, int64_t ldc);
  // panel[k][kPanel] = transposed rows of b: panel[p][j] = b[j * ldb + p], columns >= n zero.
  void (*pack_transposed)(int n, int64_t k, const T* b, int64_t ldb, T* panel);

  T (*max)(const T* x, int64_t n);  // -inf if n is 0; NaN if any element is
  T (*sum)(const T* x, int64_t n);
  T (*sum_squares)(const T* x, int64_t n);  // squares rounded before they are added
  T (*sum_centered_squares)(const T* x, int64_t n, T mean);
  // y[i] = exp(x[i] - shift); returns the sum. y may be x.
  T (*exp_sum)(const T* x, int64_t n, T shift, T* y);
  void (*exp)(const T* x, int64_t n, T* y);
  void (*sigmoid)(const T* x, int64_t n, T* y);  // 1 / (1 + exp(-x))
  void (*divide)(const T* x, int64_t n, T by, T* y);
};

// Products with packed panels (panel.h), in the order of `tile`.
struct PanelOps {
  int max_rows;
  int wide_rows;  // up to so many rows a panel is read once and in order
  // c[m, n] = a * panel for m <= max_rows, n <= kPanel, added to c if `accumulate`; a is [k][m],
  // the panel [k][kPanel] elements of `storage` (kNative: float). Memory at `ahead`, which moves by
  // ahead_step bytes for each k, is prefetched; it need not be valid.
  void (*tile)(Storage storage, int m, int n, int64_t k, const float* a, const void* panel,
               float* c, int64_t ldc, bool accumulate, const void* ahead, int64_t ahead_step);
  // out[k][m] = rows of a, transposed; m <= max_rows. `out` has room for 16 more.
  void (*pack_rows)(int m, int64_t k, const float* a, int64_t lda, float* out);
  // panel[k][kPanel] = 16-bit rows of b, transposed, columns >= n zero.
  void (*pack_transposed16)(int n, int64_t k, const uint16_t* b, int64_t ldb, uint16_t* panel);
};

struct ConvertOps {
  void (*half_to_float)(const uint16_t* x, int64_t n, float* y);
  void (*float_to_half)(const float* x, int64_t n, uint16_t* y);
  void (*bfloat_to_float)(const uint16_t* x, int64_t n, float* y);
  void (*float_to_bfloat)(const float* x, int64_t n, uint16_t* y);
};

// c[m, n] += a * (b - zeros), exact in int32 as long as k <= kMostRows. Numbers of a and of
// b - zeros lie within 255 of 0.
struct IntegerBlock {
  static constexpr int64_t kMostRows = 32768;
  int m = 0;
  int64_t n = 0, k = 0, pairs = 0;  // pairs: (k + 1) / 2
  const int32_t* a = nullptr;  // [m][lda]: numbers 2 p and 2 p + 1 of a row in the low and high
  int64_t lda = 0;             // half of element p, 0 behind the last
  const void* b = nullptr;     // [k][ldb] of bytes
  bool b_signed = false;
  int64_t ldb = 0;
  const int32_t* zeros = nullptr;  // by column, in both halves
  int32_t* c = nullptr;
  int64_t ldc = 0;
};

// What this instruction set can do at best, to read timings against.
struct ProbeOps {
  int64_t chain_flops;                       // of one round of chains()
  float (*chains)(int64_t rounds);           // independent FMA chains in registers
  float (*read)(const float* x, int64_t n);  // a sum of all, in no fixed order
};

struct IsaTable {
  const char* name;
  VectorOps<float> f32;
  VectorOps<double> f64;
  PanelOps panel;
  BitsOps bits;
  ConvertOps convert;
  void (*integers)(const IntegerBlock& block);
  ProbeOps probe;
};

// The best table this processor runs.
const IsaTable& Isa();

const IsaTable& GenericIsa();
// Null where not compiled in; the caller checks the processor.
const IsaTable* Avx2Isa();
const IsaTable* Avx512Isa();

template <typename T>
const VectorOps<T>& Vectors();
template <>
inline const VectorOps<float>& Vectors<float>() {
  return Isa().f32;
}
template <>
inline const VectorOps<double>& Vectors<double>() {
  return Isa().f64;
}

}  // namespace kvlift::exec
