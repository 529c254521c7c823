// Says which elements of its operands an operator reads for one element of its result.
#pragma once

#include <optional>
#include <vector>

#include "sym/forms/forms.h"

namespace kvlift {

// Returns true if each element of the result depends only on the operands' elements at the same
// place, with operands broadcast as in ONNX.
bool IsElementwise(const Graph& graph, NodeId node);

// The elements of one operand that are read for the result's element at i0..i(r-1), where r is the
// result's rank.
struct OperandPlace {
  // The number of the operand.
  int input = 0;
  // The operand's index on each of its axes, in terms of i0..i(r-1). An index from i(r) on stands
  // for all elements along that axis.
  std::vector<sym::Expr> at;
  // The extents of the indices from i(r) on.
  std::vector<sym::Expr> taken;
};

// Returns the places in each operand that is given, for result number `output`. Returns nullopt if
// the operator is not in the table, if a rank is not known, or if the result has other axes than
// the table expects. Source: the operator texts of ONNX and com.microsoft.
std::optional<std::vector<OperandPlace>> OperandPlaces(sym::Forms& forms, NodeId node, int output);

}  // namespace kvlift
