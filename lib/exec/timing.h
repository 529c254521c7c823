// When the output types and shapes of each node of a step can be known.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "exec/kernel.h"
#include "ir/graph.h"
#include "onnx/onnx_pb.h"

namespace kvlift::exec {

enum class Timing : uint8_t {
  // Computed before everything else, because shapes depend on the result: index arithmetic on
  // graph inputs, constants and shapes.
  kEarly,
  // Shapes are known before the step runs.
  kPlanned,
  // Shapes depend on what is computed in the step: If, Loop and functions, NonZero of an
  // activation, and all that depends on those.
  kLate,
};

// By NodeId. `order` is topological; constants are never computed, their nodes count as planned.
std::vector<Timing> TimeNodes(const Graph& graph, absl::Span<const OpDef* const> defs,
                              absl::Span<const onnx::TensorProto* const> constants,
                              const std::vector<NodeId>& order);

}  // namespace kvlift::exec
