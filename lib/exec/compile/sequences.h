// Replaces operators on sequences of tensors by operators on tensors, where positions are constant.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "ir/graph.h"

namespace kvlift::exec {

// Returns the graph with such sequences lowered, or `graph` itself if there are none. A sequence is
// lowered if SequenceConstruct makes it, or SplitToSequence with constant lengths, and its only
// readers are SequenceAt with constant positions or (for SequenceConstruct) ConcatFromSequence.
// They become Identity, Slice, Gather, Unsqueeze and Concat. All other nodes stay. Fails only if
// the new graph cannot be built.
absl::StatusOr<std::shared_ptr<const Graph>> LowerSequences(std::shared_ptr<const Graph> graph);

}  // namespace kvlift::exec
