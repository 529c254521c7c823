// The AVX-512 table. This file is compiled with the flags of that instruction set; where the
// compiler does not support it, the table is absent.
#if defined(__GNUC__) && !defined(__clang__)
// GCC 12 warns about a deliberately undefined operand inside its own intrinsics.
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#endif
#include "exec/kernels/products/gemm_impl.h"

namespace kvlift::exec {

const IsaTable* Avx512Isa() {
#if defined(KV_AVX2) && defined(__AVX512F__)
  static constexpr IsaTable table = MakeIsaTable("avx512");
  return &table;
#else
  return nullptr;
#endif
}

}  // namespace kvlift::exec
