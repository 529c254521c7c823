// Which node of the source each node of the conversion is: a node of the same operator over the
// same values gives the same values.
#pragma once

#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "proof/correspondence.h"
#include "proof/nodes.h"
#include "proof/pair.h"

namespace kvlift {

class Matches {
 public:
  // branches: the source is one of several branches, whose values may have other names.
  Matches(const GraphPair& pair, bool branches, Correspondence* twins, Nodes* nodes);

  // Sets the twins of the node's outputs: the source's of the same name, or another one. What it
  // reads has its twins. A doubted twin is set where the node of that name is not the same.
  void Match(NodeId node);
  // Sets the twins of an attention's outputs besides its result, where nothing in it is another
  // one.
  void MatchFurther(NodeId node);
  // The first value behind which an output is no longer seen to be the source's.
  struct Difference {
    std::string text;
    bool refuted = false;  // it is seen to be another one
  };
  Difference FirstUnlike(ValueId output) const;

  // Values of the source that have a twin of another name.
  bool IsTaken(ValueId before) const { return taken_.contains(before); }
  void Take(ValueId before) { taken_.insert(before); }

 private:
  bool MatchUnnamed(NodeId node);
  bool MatchConstant(NodeId node);
  std::vector<NodeId> Candidates(NodeId node);
  void AddCandidate(NodeId node, NodeId other, bool taken, std::vector<NodeId>* found) const;
  void SetTwins(NodeId mine, NodeId theirs, Sameness same, const Grounds& grounds);

  const GraphPair& pair_;
  const Graph& graph_;
  sym::Forms& forms_;
  bool branches_;
  Correspondence* twins_;
  Nodes* nodes_;
  std::vector<NodeId> constants_;                                      // nodes of the source
  absl::flat_hash_map<std::string, std::vector<NodeId>> by_operator_;  // of the source
  std::vector<NodeId> unnamed_;  // in the place of the source's fused operators
  absl::flat_hash_set<ValueId> taken_;
  absl::flat_hash_map<NodeId, Difference> unlike_;  // nodes of the conversion, and why
};

}  // namespace kvlift
