// Which elements of its operands an operator reads for one element of its result.
#pragma once

#include <optional>
#include <vector>

#include "sym/forms.h"

namespace kvlift {

// Whether each element of the results depends only on the operands' elements at the same place,
// where operands are broadcast.
bool IsElementwise(const Graph& graph, NodeId node);

struct OperandPlace {
  int input = 0;
  // By axis of the operand, in terms of the indices i0..i(r-1) of a result of rank r. An index from
  // i(r) on stands for all the elements that the operator takes in along that axis.
  std::vector<sym::Expr> at;
  // The extents of these further indices, from i(r) on.
  std::vector<sym::Expr> taken;
};

// One place for each operand. nullopt for an operator that is not known, for an operand of unknown
// rank, and for a result whose axes are not those of the table in operand_places.cc.
std::optional<std::vector<OperandPlace>> OperandPlaces(sym::Forms& forms, NodeId node, int output);

}  // namespace kvlift
