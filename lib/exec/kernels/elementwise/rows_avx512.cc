// Compiled with the flags of AVX-512; without compiler support the table is absent.
#include "exec/kernels/elementwise/rows_impl.h"

namespace kvlift::exec {

const RowTable* Avx512Rows() {
#if defined(KV_AVX2) && defined(__AVX512F__)
  static constexpr RowTable table = MakeRowTable();
  return &table;
#else
  return nullptr;
#endif
}

}  // namespace kvlift::exec
