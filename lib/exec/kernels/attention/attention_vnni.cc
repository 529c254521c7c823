// The AVX-512 table with sums over int8 rows by byte dot products. This file is compiled with the
// flags of those instructions; where the compiler does not support them, the table is absent.
#if defined(__GNUC__) && !defined(__clang__)
// GCC 12 warns about a deliberately undefined operand inside its own intrinsics.
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#endif
#include "exec/kernels/attention/attention_dot_scores.h"
#include "exec/kernels/attention/attention_dot_values.h"
#include "exec/kernels/attention/attention_isa.h"

namespace kvlift::exec {

#if defined(__AVX512VNNI__) && defined(KV_AVX2)
const AttentionKernels* VnniAttention() {
  static const AttentionKernels ops = [] {
    AttentionKernels table = *Avx512Attention();
    table.scores = DotScores;
    table.values = DotValues;
    return table;
  }();
  return &ops;
}
#else
const AttentionKernels* VnniAttention() { return nullptr; }
#endif

}  // namespace kvlift::exec
