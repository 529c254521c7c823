// Finds the twin of each node of the converted model: the node of the source with the same
// operator, attributes and operands, whose results are therefore the same.
#pragma once

#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "proof/correspondence/correspondence.h"
#include "proof/facts/nodes.h"
#include "proof/graphs/pair.h"

namespace kvlift {

class Matches {
 public:
  // `branches`: the models are proved for one branch of an If, so that values may have other names.
  // All pointers must outlive this.
  Matches(const GraphPair& pair, bool branches, Correspondence* twins, Nodes* nodes);

  // Finds the twin of a node and sets the twins of its outputs, first trying the source's node with
  // the same output name. The node's operands must have been matched before. If the node of that
  // name differs, its twin is still set, but in doubt (Grounds::doubted).
  void Match(NodeId node);
  // Sets the twins of the outputs of an Attention besides its first, if the source's node has the
  // same operator, attributes and operands.
  void MatchFurther(NodeId node);
  // Why an output is not shown to be the source's.
  struct Difference {
    // The first value that differs, and how.
    std::string text;
    bool refuted = false;  // the value is shown to be another one
  };
  // The first difference among the nodes that `output` is computed from.
  Difference FirstUnlike(ValueId output) const;

  // Returns true if a value of the source is the twin of a value already; others are tried before
  // it.
  bool IsTaken(ValueId before) const { return taken_.contains(before); }
  void Take(ValueId before) { taken_.insert(before); }

 private:
  bool MatchUnnamed(NodeId node);
  bool MatchConstant(NodeId node);
  std::vector<NodeId> Candidates(NodeId node);
  bool IsAlike(NodeId node, NodeId other) const;
  void AddCandidate(NodeId node, NodeId other, bool taken, std::vector<NodeId>* found) const;
  void SetTwins(NodeId mine, NodeId theirs, Sameness same, const Grounds& grounds);

  const GraphPair& pair_;
  const Graph& graph_;
  sym::Forms& forms_;
  bool branches_;
  Correspondence* twins_;
  Nodes* nodes_;
  std::vector<NodeId> constants_;  // Constant nodes of the source
  // Nodes of the source, by op_type.
  absl::flat_hash_map<std::string, std::vector<NodeId>> by_operator_;
  // Nodes of the source that ExpandContribOps made; their outputs have no name of the source's.
  std::vector<NodeId> unnamed_;
  absl::flat_hash_set<ValueId> taken_;
  // Nodes of the converted model whose twin is in doubt, and why.
  absl::flat_hash_map<NodeId, Difference> unlike_;
};

}  // namespace kvlift
