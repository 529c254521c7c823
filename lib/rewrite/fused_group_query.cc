// GroupQueryAttention of com.microsoft.
#include "rewrite/fused_lowering.h"

namespace kvlift::fused {

bool LowerGroupQueryAttention(Lowering& l, NodeId n) {
  (void)l;
  (void)n;
  return false;
}

}  // namespace kvlift::fused
