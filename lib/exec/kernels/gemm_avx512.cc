// The AVX-512 table. Compiled with the flags of that instruction set; where the compiler has none,
// the table is absent.
#if defined(__GNUC__) && !defined(__clang__)
// GCC 12 takes the deliberately undefined operand inside its own intrinsics for a mistake.
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#endif
#include "exec/kernels/gemm_impl.h"

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
