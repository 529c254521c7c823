// Removes nodes that do nothing.
#pragma once

#include "absl/status/status.h"
#include "onnx/onnx_pb.h"

namespace kvlift {

// Removes Identity nodes of the main graph, and nodes whose results nothing reads. Readers of an
// Identity read its operand instead; where its result is a graph output, the operand's producer
// gets that name. An Identity stays if a subgraph captures its operand or result, or if it connects
// a graph input or output to a graph output. Returns what Graph::Build returns for a broken model.
absl::Status RemoveDeadNodes(onnx::ModelProto* model);

}  // namespace kvlift
