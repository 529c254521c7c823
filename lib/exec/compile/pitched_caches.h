// Caches [B, Nk, T, D] that grow by Concat on the axis of the tokens. With B * Nk > 1 the new rows
// of a head stand behind the old ones of that head, so appending in place needs spare room behind
// each head (exec/kernels/common/pitch.h). This decides which caches can have it.
#pragma once

#include "absl/types/span.h"
#include "exec/compile/plan.h"
#include "exec/kernels/common/kernel.h"
#include "ir/graph.h"

namespace kvlift::exec {

// Fills PairPlan::apart and members and Plan::apart for the pairs that have a grower. Where a
// reader cannot take heads with a pitch, the pair's decision.reason names it and apart stays false.
void FindPitchedCaches(const Graph& graph, absl::Span<const OpDef* const> defs, Plan* plan);

}  // namespace kvlift::exec
