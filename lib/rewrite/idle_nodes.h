// Nodes that do nothing.
#pragma once

#include "absl/status/status.h"
#include "onnx/onnx_pb.h"

namespace kvlift {

// Takes the Identities out of the main graph, where no subgraph reads them: who reads one reads what
// it copies, and an output of the graph that is one becomes its producer's. With them go the nodes
// whose results nobody reads. InvalidArgument if the model has no graph.
absl::Status RemoveIdleNodes(onnx::ModelProto* model);

}  // namespace kvlift
