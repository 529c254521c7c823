// An edit of a graph as a value. A Patch is collected first, and Apply then makes a new model with
// all of it, or fails. The source is never changed.
#pragma once

#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/statusor.h"
#include "ir/graph.h"
#include "onnx/onnx_pb.h"

namespace kvlift {

struct Patch {
  // Nodes to add. The result is sorted topologically and keeps the node order of the source; a new
  // node stands right before its first reader.
  std::vector<onnx::NodeProto> new_nodes;
  std::vector<onnx::TensorProto> new_initializers;
  std::vector<onnx::ValueInfoProto> new_inputs;
  // Value name -> the value that is read in its place, by all node inputs and captures of the
  // source; graph outputs keep their values. All replacements happen at once: a replacement that is
  // itself a key is not replaced again. The inputs of new_nodes are not changed.
  absl::flat_hash_map<std::string, std::string> replace_uses;
  // (node, input position) -> the value that this operand reads. Takes precedence over
  // replace_uses.
  absl::flat_hash_map<std::pair<NodeId, int>, std::string> replace_inputs;
  absl::flat_hash_set<NodeId> remove_nodes;
  absl::flat_hash_set<std::string> remove_inputs;
  // New declared types of graph inputs and outputs by name.
  absl::flat_hash_map<std::string, onnx::TypeProto> retype;
  bool remove_dead = true;  // Drop nodes and initialisers that no graph output depends on.
  // Drop the declared types of inner values, which an edit can make wrong.
  bool drop_value_info = true;
};

// Returns the edited model. Returns Internal if the patch names a value, node, operand, input or
// output that the graph does not have, or if the result would define a name twice, read an
// undefined name or have a cycle.
absl::StatusOr<onnx::ModelProto> Apply(const Graph& graph, const Patch& patch);

}  // namespace kvlift
