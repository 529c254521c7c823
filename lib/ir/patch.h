// An edit of a graph as a value: collected first, applied whole or not at all.
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
  // Appended; the result is ordered topologically and keeps the source's node order, each new node
  // standing where its inputs are ready and as late as its first reader allows.
  std::vector<onnx::NodeProto> new_nodes;
  std::vector<onnx::TensorProto> new_initializers;
  std::vector<onnx::ValueInfoProto> new_inputs;
  // Every reader of the key in the source (node inputs, captures, not graph outputs) reads the
  // value instead. All at once: a value that is itself a key is not replaced again, and new_nodes
  // read what they say.
  absl::flat_hash_map<std::string, std::string> replace_uses;
  // Replaces one operand: (node, input position) -> value name. Goes before replace_uses.
  absl::flat_hash_map<std::pair<NodeId, int>, std::string> replace_inputs;
  absl::flat_hash_set<NodeId> remove_nodes;
  absl::flat_hash_set<std::string> remove_inputs;
  // New declared types of graph inputs and outputs by name.
  absl::flat_hash_map<std::string, onnx::TypeProto> retype;
  bool remove_dead = true;      // drop nodes and initialisers that nothing needs any more
  bool drop_value_info = true;  // declared inner shapes are stale after an edit
};

// Returns the edited model. Internal if the result would define a name twice, read an undefined
// one or have a cycle; the source is never changed.
absl::StatusOr<onnx::ModelProto> Apply(const Graph& graph, const Patch& patch);

}  // namespace kvlift
