// The inner loops of grouped attention in the fast order, one table per instruction set. Rows of
// keys and values are read once, whole and in rising order, in the type they are stored in. All
// tables sum in the same order: a score has 16 lanes, element d is added to lane d mod 16 in rising
// d, then the lanes are added by the tree of gemm_isa.h; values are added token by token.
#pragma once

#include <cstdint>

#include "exec/kernels/common/gemm_isa.h"

namespace kvlift::exec {

// Rows of keys or values: element d of row t is at data[t * stride + d], d < size.
struct RowBlock {
  const void* data = nullptr;
  Storage storage = Storage::kNative;
  int64_t stride = 0;  // in elements
  int64_t rows = 0;
  int64_t size = 0;  // a multiple of 16
  // The rows that are read after this block, at least kRowsAhead of them: they are prefetched.
  // Null: unknown.
  const void* next = nullptr;
  // Null: elements are of `storage`. Otherwise they are int8, and element d of row t is multiplied
  // by scales[t * scale_stride + d / group]; `group` is a multiple of 16. The pack functions do not
  // take such rows.
  const float* scales = nullptr;
  int64_t scale_stride = 0, group = 0;
  const float* next_scales = nullptr;  // scales of `next`; null: unknown
};

constexpr int kRowsAhead = 32;

struct AttentionKernels {
  // Sets scores[h * ld + t] to the sum over d of queries[h * keys.size + d] * key[t][d], h < heads.
  void (*scores)(const RowBlock& keys, const float* queries, int64_t heads, float* scores,
                 int64_t ld);
  // Adds to out[h * values.size + d] the sum over t of weights[h * ld + t] * value[t][d].
  void (*values)(const RowBlock& values, const float* weights, int64_t ld, int64_t heads,
                 float* out);
  // Transposes up to 32 rows of keys: panel[d * 32 + t] = key[t][d], 0 for t >= keys.rows. Null
  // where VectorOps::pack_transposed is as fast.
  void (*pack_keys)(const RowBlock& keys, float* panel);
  // Rearranges values in panels of 32 elements: panels[(d / 32 * ld + t) * 32 + d % 32] =
  // value[t][d].
  void (*pack_values)(const RowBlock& values, int64_t ld, float* panels);
  // Returns the highest element that is not NaN, -inf if there is none.
  float (*highest)(const float* x, int64_t n);
  // Returns true if an element is infinite or NaN.
  bool (*odd)(const float* x, int64_t n);
  // Sets x to cap * tanh(x / cap), with tanh exact to 4 ulp.
  void (*soft_cap)(float* x, int64_t n, float cap);
  void (*scale)(float* x, int64_t n, float by);                       // x *= by
  void (*add_scaled)(const float* x, int64_t n, float by, float* y);  // y = fma(x, by, y)
  // Sets x to -inf where bias is -inf (also if x is NaN), else to x + bias.
  void (*add_bias)(const float* bias, int64_t n, float* x);
  // Sets x to -inf where `keep` is 0.
  void (*keep)(const uint8_t* keep, int64_t n, float* x);
};

// Returns the table of the instruction set that Isa() uses.
const AttentionKernels& AttentionIsa();

const AttentionKernels& GenericAttention();
// These return null if the table is not compiled in. The caller checks that the processor has the
// instructions.
const AttentionKernels* Avx2Attention();
const AttentionKernels* Avx512Attention();
// Returns the AVX-512 table with other sums over int8 rows, which are computed from exact sums of
// integers (attention_dots.h); null if it is not compiled in.
const AttentionKernels* VnniAttention();

}  // namespace kvlift::exec
