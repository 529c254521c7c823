// The vector primitives of all floating-point kernels, one table per instruction set, chosen once
// per process. They fix the order of every sum:
//   dot products  one chain acc = fma(a[k], b[k], acc) in rising k, starting from 0;
//   row sums      16 lanes (8 for double), element i into lane i mod 16, then a fixed tree.
// No result depends on the number of rows, the batch, the threads or trailing zeros, and the AVX2
// and AVX-512 tables give the same bits. The caller guarantees sizes and pointers.
#pragma once

#include <cstdint>

#include "exec/kernels/common/bits_isa.h"

namespace kvlift::exec {

// Primitives for one compute type T (float or double).
template <typename T>
struct VectorOps {
  static constexpr int kPanel = sizeof(T) == 4 ? 32 : 16;  // columns of a packed panel
  static constexpr int kStreamRows = 8;

  int max_rows;  // most rows of `tile`
  // Sets c[m, n] to a[m, k] * b[k, n], added to the old c if `accumulate`. m <= max_rows, n <=
  // kPanel; element (i, p) of a is a[i * a_row + p * a_k]; rows of b and c are ldb and ldc apart.
  void (*tile)(int m, int n, int64_t k, const T* a, int64_t a_row, int64_t a_k, const T* b,
               int64_t ldb, T* c, int64_t ldc, bool accumulate);
  // Does the same for m <= kStreamRows and any n, reading each row of b once and in order. a has
  // contiguous k, b has elements of `storage` (kNative: T).
  void (*stream)(int m, int64_t n, int64_t k, const T* a, int64_t lda, const void* b,
                 Storage storage, int64_t ldb, T* c, int64_t ldc);
  // Transposes n rows of b: panel[p][j] = b[j * ldb + p], p < k; columns >= n are zero.
  void (*pack_transposed)(int n, int64_t k, const T* b, int64_t ldb, T* panel);

  T (*max)(const T* x, int64_t n);  // -inf if n is 0; NaN if any element is
  T (*sum)(const T* x, int64_t n);
  T (*sum_squares)(const T* x, int64_t n);  // squares are rounded before they are added
  T (*sum_centered_squares)(const T* x, int64_t n, T mean);
  // Sets y[i] to exp(x[i] - shift) and returns the sum. y may be x.
  T (*exp_sum)(const T* x, int64_t n, T shift, T* y);
  void (*exp)(const T* x, int64_t n, T* y);
  void (*sigmoid)(const T* x, int64_t n, T* y);  // 1 / (1 + exp(-x))
  void (*divide)(const T* x, int64_t n, T by, T* y);
};

// Products with packed panels (panel.h), with the sums of `tile`.
struct PanelOps {
  int max_rows;
  int wide_rows;  // up to this many rows, a panel is read once and in order
  // Sets c[m, n] to a * panel, added to c if `accumulate`, for m <= max_rows and n <= kPanel. a is
  // [k][m], the panel [k][kPanel] elements of `storage` (kNative: float). Memory at `ahead`, which
  // moves by ahead_step bytes for each k, is prefetched; it need not be valid.
  void (*tile)(Storage storage, int m, int n, int64_t k, const float* a, const void* panel,
               float* c, int64_t ldc, bool accumulate, const void* ahead, int64_t ahead_step);
  // Transposes m rows of a: out[k][m], m <= max_rows. `out` must have room for 16 more elements.
  void (*pack_rows)(int m, int64_t k, const float* a, int64_t lda, float* out);
  // Transposes n rows of 16-bit elements of b: panel[k][kPanel]; columns >= n are zero.
  void (*pack_transposed16)(int n, int64_t k, const uint16_t* b, int64_t ldb, uint16_t* panel);
};

struct ConvertOps {
  void (*half_to_float)(const uint16_t* x, int64_t n, float* y);
  void (*float_to_half)(const float* x, int64_t n, uint16_t* y);
  void (*bfloat_to_float)(const uint16_t* x, int64_t n, float* y);
  void (*float_to_bfloat)(const float* x, int64_t n, uint16_t* y);
};

// Adds a * (b - zeros) to c[m, n], exact in int32 if k <= kMostRows. The numbers of a and of b -
// zeros lie in [-255, 255].
struct IntegerBlock {
  static constexpr int64_t kMostRows = 32768;
  int m = 0;
  int64_t n = 0, k = 0, pairs = 0;  // pairs: (k + 1) / 2
  // [m][lda]: numbers 2 p and 2 p + 1 of a row in the low and high half of element p, 0 behind the
  // last.
  const int32_t* a = nullptr;
  int64_t lda = 0;
  const void* b = nullptr;  // [k][ldb] of bytes
  bool b_signed = false;
  int64_t ldb = 0;
  const int32_t* zeros = nullptr;  // by column, in both halves
  int32_t* c = nullptr;
  int64_t ldc = 0;
};

// The peak rates of an instruction set, to compare measured times with.
struct ProbeOps {
  int64_t chain_flops;                       // operations in one round of chains()
  float (*chains)(int64_t rounds);           // independent FMA chains in registers
  float (*read)(const float* x, int64_t n);  // sum of all elements, in no fixed order
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

// Returns the best table that this processor runs.
const IsaTable& Isa();

const IsaTable& GenericIsa();
// These return null if the table is not compiled in. The caller checks that the processor has the
// instructions.
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
