// Checks that operands may have one row per sequence where the source has one row for all: every
// operator behind them must accept that and keep sequence b's result dependent on row b only.
#pragma once

#include <optional>
#include <string>
#include <vector>

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

// Follows the widened axes through the nodes in `live` until they meet operands that have the
// extent `batch` there. Returns nullopt if all nodes accept them, else the reason why one does not.
// Elementwise operators, MatMul (batch axes), Transpose, Unsqueeze, Squeeze, Concat, Slice, Split
// and Gather along other axes are accepted; all other operators are not.
std::optional<std::string> CheckBatchAxis(sym::Forms& forms,
                                          const std::vector<WidenedOperand>& widened,
                                          const absl::flat_hash_set<NodeId>& live, sym::Expr batch);

}  // namespace kvlift
