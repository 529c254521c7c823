// The inner loops of grouped attention in order fast, one table per instruction set. Rows of keys
// and values are read once, whole and in rising order, in the width they are stored in.
// All tables sum in the same order: a score adds 16 lanes, element d in lane d mod 16 in rising d,
// then by the tree of gemm_isa.h; values are added token by token.
#pragma once

#include <cstdint>

#include "exec/kernels/gemm_isa.h"

namespace kvlift::exec {

// Rows of keys or values: element d of row t is at data[t * stride + d], d < size.
struct RowBlock {
  const void* data = nullptr;
  Storage storage = Storage::kNative;
  int64_t stride = 0;  // in elements
  int64_t rows = 0;
  int64_t size = 0;  // a multiple of 16
  // What is read afterwards, if known and at least kRowsAhead rows: fetched ahead of time.
  const void* next = nullptr;
  // If given, elements are int8: element d of row t is times scales[t * scale_stride + d / group].
  // `group` is a multiple of 16; there is nothing for packing.
  const float* scales = nullptr;
  int64_t scale_stride = 0, group = 0;
  const float* next_scales = nullptr;  // of `next`, if given
};

constexpr int kRowsAhead = 32;

struct AttentionKernels {
  // scores[h * ld + t] = sum of queries[h * keys.size + d] * key[t][d], h < heads.
  void (*scores)(const RowBlock& keys, const float* queries, int64_t heads, float* scores,
                 int64_t ld);
  // out[h * values.size + d] += sum of weights[h * ld + t] * value[t][d].
  void (*values)(const RowBlock& values, const float* weights, int64_t ld, int64_t heads,
                 float* out);
  // Up to 32 rows of keys transposed: panel[d * 32 + t] = key[t][d], 0 for t >= keys.rows. Null
  // where VectorOps::pack_transposed does as well.
  void (*pack_keys)(const RowBlock& keys, float* panel);
  // Values in panels of 32 elements: panels[(d / 32 * ld + t) * 32 + d % 32] = value[t][d].
  void (*pack_values)(const RowBlock& values, int64_t ld, float* panels);
  // The highest element that is no NaN, -inf if there is none.
  float (*highest)(const float* x, int64_t n);
  // Whether some element is infinite or NaN.
  bool (*odd)(const float* x, int64_t n);
  // x = cap * tanh(x / cap); tanh is good to 4 ulp.
  void (*soft_cap)(float* x, int64_t n, float cap);
  void (*scale)(float* x, int64_t n, float by);                       // x *= by
  void (*add_scaled)(const float* x, int64_t n, float by, float* y);  // y = fma(x, by, y)
  // x = bias of -inf ? -inf : x + bias, whatever x is.
  void (*add_bias)(const float* bias, int64_t n, float* x);
  // x = keep ? x : -inf.
  void (*keep)(const uint8_t* keep, int64_t n, float* x);
};

// Of the instruction set that Isa() uses.
const AttentionKernels& AttentionIsa();

const AttentionKernels& GenericAttention();
// Null where not compiled in; the caller checks the processor.
const AttentionKernels* Avx2Attention();
const AttentionKernels* Avx512Attention();
// The same but for int8 rows, whose sums it makes of exact sums of integers (attention_dots.h).
const AttentionKernels* VnniAttention();

}  // namespace kvlift::exec
