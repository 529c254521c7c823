// Moves the nodes of a branch of an If into the graph of the If.
#pragma once

#include <string>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/status/statusor.h"
#include "onnx/onnx_pb.h"

namespace kvlift {

// Returns true for the If of the default domain.
bool IsIf(const onnx::NodeProto& node);

class BranchInliner {
 public:
  // What becomes of results of a branch that have the name of a result of the If.
  enum class Outputs { kMayKeepNames, kGetOwnNames };

  explicit BranchInliner(const onnx::GraphProto& graph);

  // Adds the nodes and constants of the If's branch for a true (`taken`) or false condition to
  // `graph`, where values get other names if theirs are taken. Returns the names of the branch's
  // results, at least one for each result of the If. Returns Unimplemented, with `graph` changed in
  // part, if the node has no such branch, or if the branch has subgraphs of its own.
  absl::StatusOr<std::vector<std::string>> Inline(const onnx::NodeProto& node, bool taken,
                                                  Outputs outputs, onnx::GraphProto* graph);

 private:
  void AddNamesOf(const onnx::GraphProto& graph);
  onnx::GraphProto WithOwnNames(const onnx::NodeProto& node, onnx::GraphProto branch,
                                Outputs outputs) const;

  absl::flat_hash_set<std::string> taken_;  // the names of all values so far
};

}  // namespace kvlift
