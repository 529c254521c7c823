// Names inside the bodies of If, Loop and Scan. Bodies may nest; no function here recurses.
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

// One body, with the names it defines itself.
struct Scope {
  const onnx::GraphProto* graph;
  int parent;  // index of the enclosing body, -1 for a body of the node itself
  int depth;   // 1 for a body of the node itself
  absl::flat_hash_set<std::string_view> defines;
};

// All bodies below a node, each after the one that encloses it. InvalidArgument if a body defines a
// name twice.
absl::StatusOr<std::vector<Scope>> CollectScopes(const onnx::NodeProto& node);

// True if the body or one that encloses it (below the node) defines the name.
bool Defines(const std::vector<Scope>& scopes, int scope, std::string_view name);

// The names that the bodies read and do not define: each once, in order of first appearance.
std::vector<std::string_view> CapturedNames(const std::vector<Scope>& scopes);

// Depth of the most deeply nested body of a model, its functions included; 0 without bodies.
int SubgraphDepth(const onnx::ModelProto& model);

// Renames the values a node reads and defines, captures in its bodies included.
absl::Status RenameValues(const absl::flat_hash_map<std::string, std::string>& names,
                          onnx::NodeProto* node);

}  // namespace kvlift
