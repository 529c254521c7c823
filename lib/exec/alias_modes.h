// Two ways to catch a wrong decision about caches that are written in place (program.h, AliasMode).
// Guard: presents are copies, made when the cache would have been written; from then on nobody may
// read the past. Poison: before a cache is written, the rows behind those that will hold tokens
// become NaN; whoever reads them spoils the step.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "exec/kernel.h"
#include "exec/plan.h"
#include "exec/tensor.h"
#include "ir/graph.h"

namespace kvlift::exec {

// What guard mode has declared dead in this step.
class RetiredMemory {
 public:
  void Clear() { regions_.clear(); }
  // `what` names the cache and who would have written it.
  void Retire(const View& past, std::string what);
  // FailedPrecondition if one of the operands lies in memory that is retired.
  absl::Status Check(absl::Span<const View> operands) const;

 private:
  struct Region {
    const std::byte *begin, *end;
    std::string what;
  };
  std::vector<Region> regions_;
};

// Whether nothing but Attention with nonpad_kv_seqlen, directly or through Slice and views, reads
// what the pair's writer, a linear TensorScatter, leaves, in this step or, as the past, in the
// next: its unused rows are read by nobody. A length that only shapes and constants make is that of
// the buffer, not of its valid rows.
bool HasUnreadRows(const Graph& graph, absl::Span<const OpDef* const> defs, const PairPlan& pair);

// Fills the rows behind the update with NaN (all bits set), for each batch entry. `inputs` are
// those of the TensorScatter `node`. Does nothing for integers or indices that do not fit.
void PoisonRows(const onnx::NodeProto& node, absl::Span<const View> inputs);

}  // namespace kvlift::exec
