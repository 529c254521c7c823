// The part of a graph that computes some of its values from others.
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
  std::vector<ValueId> entering;  // `stops` that the nodes read, in the order of the graph
  std::vector<ValueId> inputs;    // graph inputs that the nodes read, in their order
  // Graph inputs of which only the shape is read.
  absl::flat_hash_set<ValueId> shape_only;
};

// The nodes that the values need, back to `stops` and to the graph's inputs. A value that is a stop
// itself is computed; stops are inputs for those who read them.
GraphSlice SliceOf(const Graph& graph, const std::vector<ValueId>& values,
                   const absl::flat_hash_set<ValueId>& stops);

// The slice as a model whose outputs are `outputs`. types: of the stops that enter and of outputs
// that the graph does not declare. renamed: other names for graph inputs. The weights are those of
// the graph's model, which is kept alive.
std::shared_ptr<const onnx::ModelProto> BuildSlice(
    const Graph& graph, const GraphSlice& slice, const std::vector<ValueId>& outputs,
    const absl::flat_hash_map<ValueId, TensorType>& types,
    const absl::flat_hash_map<ValueId, ValueId>& renamed);

}  // namespace kvlift
