// Operators on sequences, optional values and strings. They run as calls (control_flow.h), since
// their results own their memory.
#pragma once

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "exec/memory/tensor.h"
#include "ir/graph.h"

namespace kvlift::exec {

// Returns the single output. Omitted inputs are absent(). InvalidArgument for inputs that do not
// fit the operator.
using SequenceOpFn = absl::StatusOr<Tensor> (*)(const onnx::NodeProto& node,
                                                absl::Span<const View> inputs);

// Returns nullptr if the node is not such an operator.
SequenceOpFn FindSequenceOp(const Graph& graph, NodeId node);

}  // namespace kvlift::exec
