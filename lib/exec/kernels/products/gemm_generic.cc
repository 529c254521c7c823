// The portable table, and the choice of a table for this process.
#include "exec/kernels/products/gemm_impl.h"

namespace kvlift::exec {

const IsaTable& GenericIsa() {
  static constexpr IsaTable table = MakeIsaTable("generic");
  return table;
}

const IsaTable& Isa() {
  static const IsaTable& best = []() -> const IsaTable& {
#if defined(__x86_64__)
    if (Avx512Isa() != nullptr && __builtin_cpu_supports("avx512f") &&
        __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
        __builtin_cpu_supports("avx512dq")) {
      return *Avx512Isa();
    }
    if (Avx2Isa() != nullptr && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
      return *Avx2Isa();
    }
#endif
    return GenericIsa();
  }();
  return best;
}

}  // namespace kvlift::exec
