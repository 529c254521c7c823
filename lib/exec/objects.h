// Operators on values that are no dense numbers: sequences, optional values, strings. They run as
// calls, since what they give owns its memory.
#pragma once

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "exec/tensor.h"
#include "ir/graph.h"

namespace kvlift::exec {

// The one output from the inputs (absent() where omitted).
using ObjectFn = absl::StatusOr<Tensor> (*)(const onnx::NodeProto& node,
                                            absl::Span<const View> inputs);

// nullptr if the node is no such operator.
ObjectFn FindObjectOp(const Graph& graph, NodeId node);

}  // namespace kvlift::exec
