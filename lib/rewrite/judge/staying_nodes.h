// Finds the nodes of the source that stay in the result of a plan, and the caches that they read
// there. Internal to lib/rewrite.
#pragma once

#include <string>

#include "absl/container/flat_hash_set.h"
#include "rewrite/plan/conversion_plan.h"

namespace kvlift::internal {

class StayingNodes {
 public:
  StayingNodes(const Analysis& analysis, const ConversionPlan& plan);

  bool Contains(NodeId n) const { return nodes_.contains(n); }
  // Returns true if the node is in the result and reads there what it reads at this operand in the
  // source, or a view of it.
  bool Keeps(NodeId n, int operand) const {
    return nodes_.contains(n) && !rederived_.contains({n, operand});
  }
  // Returns a node that reads rows of the past of a cache besides its update, as they are or in a
  // view; kNoNode if none does. A Shape of a buffer reads none.
  NodeId ReaderOfPast(const PlannedCache& cache) const;
  // Returns a node whose body reads this past or present itself, not a view of it; kNoNode if no
  // body does.
  NodeId CaptureOf(const PlannedCache& cache, ValueId v) const;
  // Returns true if a value of the source has the name and is in the result.
  bool HasValue(const std::string& name) const;

 private:
  void Walk(std::vector<ValueId> values);
  // Returns true if nodes that stay read something else in place of the past and the present.
  bool ReadsView(const PlannedCache& cache) const;

  const Graph& graph_;
  const ConversionPlan& plan_;
  absl::flat_hash_set<std::pair<NodeId, int>> rederived_;
  absl::flat_hash_set<ValueId> provided_;  // by new nodes, under the old names
  absl::flat_hash_set<NodeId> nodes_;
};

}  // namespace kvlift::internal
