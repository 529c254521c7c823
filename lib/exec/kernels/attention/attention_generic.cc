// The portable table, and the choice of a table for this process.
#include "exec/kernels/attention/attention_impl.h"

namespace kvlift::exec {

const AttentionKernels& GenericAttention() {
  static constexpr AttentionKernels ops = MakeAttentionKernels();
  return ops;
}

const AttentionKernels& AttentionIsa() {
  static const AttentionKernels& best = []() -> const AttentionKernels& {
#if defined(__x86_64__)
    const bool dots = __builtin_cpu_supports("avx512vnni") && VnniAttention() != nullptr;
    if (&Isa() == Avx512Isa() && dots) return *VnniAttention();
#endif
    if (&Isa() == Avx512Isa() && Avx512Attention() != nullptr) return *Avx512Attention();
    if (&Isa() == Avx2Isa() && Avx2Attention() != nullptr) return *Avx2Attention();
    return GenericAttention();
  }();
  return best;
}

}  // namespace kvlift::exec
