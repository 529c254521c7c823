// The AVX2 table. This file is compiled with the flags of that instruction set; where the compiler
// does not support it, the table is absent.
#include "exec/kernels/products/gemm_impl.h"

namespace kvlift::exec {

const IsaTable* Avx2Isa() {
#if defined(KV_AVX2) && defined(__AVX2__)
  static constexpr IsaTable table = MakeIsaTable("avx2");
  return &table;
#else
  return nullptr;
#endif
}

}  // namespace kvlift::exec
