// The part of a graph that computes given values, back to given other values.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "ir/graph.h"
#include "onnx/onnx_pb.h"

namespace kvlift {

struct GraphSlice {
  std::vector<NodeId> nodes;      // in the order of the graph
  std::vector<ValueId> entering;  // stops that the nodes read and do not compute, by ValueId
  std::vector<ValueId> inputs;    // graph inputs that the nodes read, in the order of the graph
  absl::flat_hash_set<ValueId> shape_only;  // those of `inputs` that only Shape nodes read
};

// Returns the nodes that compute `values` from `stops` and graph inputs. An element of `values` is
// computed even if it is a stop; everywhere else a stop ends the search.
GraphSlice SliceOf(const Graph& graph, const std::vector<ValueId>& values,
                   const absl::flat_hash_set<ValueId>& stops);

// Returns the slice as a model with these outputs. types: the types of all stops that enter, and of
// outputs that are to be declared otherwise than in the graph. renamed: graph inputs that the nodes
// read in place of others. The model shares the weights of the graph's model and keeps it alive.
std::shared_ptr<const onnx::ModelProto> BuildSlice(
    const Graph& graph, const GraphSlice& slice, const std::vector<ValueId>& outputs,
    const absl::flat_hash_map<ValueId, TensorType>& types,
    const absl::flat_hash_map<ValueId, ValueId>& renamed);

}  // namespace kvlift
