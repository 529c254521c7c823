// Two checks of the decision to write a cache in place (AliasMode in program.h). Guard mode writes
// each present to a separate buffer and fails the step if a node reads the past after the point
// where an in-place write would have overwritten it. Poison mode fills the unused rows of a cache
// with NaN before each write, so that a node that reads them spoils its results.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "exec/compile/plan.h"
#include "exec/kernels/common/kernel.h"
#include "exec/memory/tensor.h"
#include "ir/graph.h"

namespace kvlift::exec {

// The memory that no node may read any more in this step (guard mode).
class RetiredMemory {
 public:
  void Clear() { regions_.clear(); }
  // Marks the bytes of `past` as dead until Clear. `what` names the cache and its writer for the
  // error message. A view without data is ignored.
  void Retire(const View& past, std::string what);
  // Returns FailedPrecondition if an operand starts inside a retired region.
  absl::Status Check(absl::Span<const View> operands) const;

 private:
  struct Region {
    const std::byte *begin, *end;
    std::string what;
  };
  std::vector<Region> regions_;
};

// Returns true if the pair is written by one linear TensorScatter and every reader of the cache, in
// this step or (as the past) in the next, is an Attention with nonpad_kv_seqlen that reads it as
// keys or values, directly or through Slice and views. Rows behind the valid ones are then never
// read. Shape does not count as a reader. A nonpad_kv_seqlen that is computed from shapes and
// constants alone is not accepted, since it may be the length of the buffer.
bool HasUnreadRows(const Graph& graph, absl::Span<const OpDef* const> defs, const PairPlan& pair);

// Fills the rows behind the update of each sequence with NaN (all bits set), before the write.
// `inputs` are those of the TensorScatter `node`: cache [B, .., M, ..], update [B, .., S, ..] and
// optional write_indices [B]. Skips element types that are not floats, and sequences whose index is
// out of range.
void PoisonRows(const onnx::NodeProto& node, absl::Span<const View> inputs);

}  // namespace kvlift::exec
