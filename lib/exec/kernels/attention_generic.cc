// The portable table, and the choice of the table of this process.
#include "exec/kernels/attention_impl.h"

namespace kvlift::exec {

const AttentionOps& GenericAttention() {
  static constexpr AttentionOps ops = MakeAttentionOps();
  return ops;
}

const AttentionOps& AttentionIsa() {
  static const AttentionOps& best = []() -> const AttentionOps& {
    if (&Isa() == Avx512Isa() && Avx512Attention() != nullptr) return *Avx512Attention();
    if (&Isa() == Avx2Isa() && Avx2Attention() != nullptr) return *Avx2Attention();
    return GenericAttention();
  }();
  return best;
}

}  // namespace kvlift::exec
