// Sequences of tensors, which the executor has no values for, as plain tensors.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "ir/graph.h"

namespace kvlift::exec {

// Where a sequence is made by SequenceConstruct, or by SplitToSequence with constant lengths, and
// only picked from at constant positions or joined again, its operators become Identity, Slice,
// Gather and Concat. All else stays. The graph itself if there is nothing to do.
absl::StatusOr<std::shared_ptr<const Graph>> LowerSequences(std::shared_ptr<const Graph> graph);

}  // namespace kvlift::exec
