// Checks that operands may have one row per sequence where the source has one row for all: every
// operator behind them must accept that and keep sequence b's result dependent on row b only.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "ir/graph.h"
#include "sym/forms/forms.h"

namespace kvlift {

// An operand whose extent on `axis` becomes B instead of 1.
struct WidenedOperand {
  NodeId node;
  int operand;
  int axis;
};

struct WidenedGraph {
  // Why a node cannot have one row per sequence; if set, `values` is not complete.
  std::optional<std::string> misfit;
  absl::flat_hash_map<ValueId, int> values;  // widened values, with the axis
};

// Follows the widened axes through the nodes in `live` until they meet operands that have the
// extent `batch` there.
// Elementwise operators, MatMul (batch axes), Transpose, Unsqueeze, Squeeze, Concat, Slice, Split
// and Gather along other axes are accepted; all other operators are not.
WidenedGraph FollowBatchAxis(sym::Forms& forms, const std::vector<WidenedOperand>& widened,
                             const absl::flat_hash_set<NodeId>& live, sym::Expr batch);

}  // namespace kvlift
