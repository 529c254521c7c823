// The AVX2 table. This file is compiled with the flags of that instruction set; where the compiler
// does not support it, the table is absent.
#include "exec/kernels/elementwise/rows_impl.h"

namespace kvlift::exec {

const RowTable* Avx2Rows() {
#if defined(KV_AVX2) && defined(__AVX2__)
  static constexpr RowTable table = MakeRowTable();
  return &table;
#else
  return nullptr;
#endif
}

}  // namespace kvlift::exec
