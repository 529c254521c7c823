// An operand whose first extent was 1 for all sequences gets one row per sequence. Is every
// operator behind it content with that, and does sequence b still see row b only?
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "ir/graph.h"
#include "sym/forms.h"

namespace kvlift {

struct WidenedOperand {
  NodeId node;
  int operand;
  int axis;
};

// Follows the widened axis through the live nodes until it meets an operand that has the batch
// there. nullopt if all is well, else the reason. Covers elementwise operators, MatMul batch axes,
// Transpose, Unsqueeze, Squeeze, Concat, Slice, Split and Gather along other axes, Cast.
std::optional<std::string> CheckBatchAxis(sym::Forms& forms,
                                          const std::vector<WidenedOperand>& widened,
                                          const absl::flat_hash_set<NodeId>& live, sym::Expr batch);

}  // namespace kvlift
