// Compiled with the flags of its instruction set; where the compiler has none, it is absent.
#include "exec/kernels/rows_impl.h"

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
