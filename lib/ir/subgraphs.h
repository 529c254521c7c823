// Scopes of names inside the bodies of If, Loop and Scan. Bodies may nest; no function here
// recurses.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "onnx/onnx_pb.h"

namespace kvlift {

// One body, with the names that it defines itself: inputs, initialisers and node outputs.
struct Scope {
  const onnx::GraphProto* graph;
  int parent;  // index of the enclosing body in the list; -1 for a body of the node itself
  int depth;   // 1 for a body of the node itself
  absl::flat_hash_set<std::string_view> defines;
};

// Returns true if the node has a body, as If, Loop and Scan have.
bool HasBody(const onnx::NodeProto& node);

// Returns the names of all values of a graph, those inside the bodies of its nodes included. No new
// value can have one of them. The graph need not be valid.
absl::flat_hash_set<std::string> NamesIn(const onnx::GraphProto& graph);

// Returns all bodies inside a node, each after the one that encloses it. They point into `node`.
// Returns InvalidArgument with the code KV024 if a body defines a name twice.
absl::StatusOr<std::vector<Scope>> CollectScopes(const onnx::NodeProto& node);

// Returns true if the body `scope`, or a body inside the node that encloses it, defines the name.
bool Defines(const std::vector<Scope>& scopes, int scope, std::string_view name);

// Returns the names that the bodies read and do not define, each once, in order of appearance.
std::vector<std::string_view> CapturedNames(const std::vector<Scope>& scopes);

// Renames the values that a node reads and defines, including what its bodies capture. Names that a
// body defines itself stay. Returns InvalidArgument if a body defines a name twice; does not check
// whether a body defines one of the new names.
absl::Status RenameValues(const absl::flat_hash_map<std::string, std::string>& names,
                          onnx::NodeProto* node);

// Returns the constant that a branch of an If gives as output k: an initialiser of the branch, or
// the tensor of a Constant node. branch: "then_branch" or "else_branch". Null if the branch gives
// another value. The tensor is the node's.
const onnx::TensorProto* ConstantOfBranch(const onnx::NodeProto& node, std::string_view branch,
                                          int k);

}  // namespace kvlift
