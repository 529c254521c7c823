// Sorts the nodes of a graph by when their output types and shapes can be known.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "exec/kernels/common/kernel.h"
#include "ir/graph.h"
#include "onnx/onnx_pb.h"

namespace kvlift::exec {

enum class Timing : uint8_t {
  // Computed before everything else, because shapes depend on the result: index arithmetic on graph
  // inputs, constants and shapes.
  kEarly,
  // The output shapes are known before the step runs.
  kPlanned,
  // The output shapes depend on what the step computes: If, Loop, Scan, functions, NonZero of an
  // activation, and every node that depends on them.
  kLate,
};

// Returns one entry per NodeId. `order` is topological. `defs` has one entry per node, null for
// calls. `constants` has one entry per value, null where it is not constant; a node whose results
// are constants is never run and counts as planned.
std::vector<Timing> TimeNodes(const Graph& graph, absl::Span<const OpDef* const> defs,
                              absl::Span<const onnx::TensorProto* const> constants,
                              const std::vector<NodeId>& order);

}  // namespace kvlift::exec
