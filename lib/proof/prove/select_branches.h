// Writes an If as a choice between two values that are both computed.
#pragma once

#include "absl/status/statusor.h"
#include "onnx/onnx_pb.h"

namespace kvlift {

// Returns the model with the nodes of both branches in place of an If, and with a Where for each of
// its results. This gives the If's results if its condition is one element, if both branches give
// results of the same types and extents, and if each node of both branches runs for all sizes and
// numbers that a host may feed. An If for which this is not shown stays, such as one whose branches
// look something up or have subgraphs of their own. Returns the error of Graph::Build if the model,
// whose opset is 13 or later, has no valid graph.
absl::StatusOr<onnx::ModelProto> SelectBranches(onnx::ModelProto model);

}  // namespace kvlift
