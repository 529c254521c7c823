// Chains of operators on rows that become one node (kernels/rows.h), with the same bits: norms,
// rotations of halves, gated activations, scales and masks, whatever they are made of.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "ir/graph.h"

namespace kvlift::exec {

// The graph with such chains fused; `graph` itself if there are none. Joined are float operators
// with a single result that nobody but the chain reads, known to work along the last axis. All
// constants of the result are initialisers; of large ones only type and shape. A MatMul with
// weights takes in the Add of its one reader; with `attention` an Attention takes in the
// DequantizeLinear of its keys and values (fusing_attention.h), which only order fast has.
absl::StatusOr<std::shared_ptr<const Graph>> FuseRows(std::shared_ptr<const Graph> graph,
                                                      bool attention = false);

}  // namespace kvlift::exec
