// Sums over an axis on which at most one element is 1 and all others are 0, as OneHot and Equal
// make them: such a product picks rows, or writes them, and such a sum says whether there is a 1.
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "sym/forms/forms_engine.h"

namespace kvlift::sym::internal {

// The index of the axis at which the element is 1, if `condition` holds; else it is 0 everywhere.
struct PlaceOfOne {
  Expr place;
  Expr condition;
};

// Solves the element of a one-hot tensor for Index(kUpdateBase), which runs over an axis of
// `extent` elements and is one side of an equation. Its other indices are those of `result`, which
// has them as i0, i1, ... Positions that a host gives are assumed to count up, and to lie inside.
// Returns nullopt for other elements, and if more than one element may be 1.
std::optional<PlaceOfOne> FindPlaceOfOne(OpContext& c, Expr element, const Shape& result,
                                         Expr extent);

// Returns the indices of the element of an operand, 0 or 1, that takes part in the element i0, i1,
// ... of a product, at `along` on the axis that is summed.
using OperandIndices = std::function<std::vector<Expr>(int operand, Expr along)>;

// Sets output 0 of a product of two operands whose result has this shape, if one operand is one-hot
// on the axis of `extent` elements that is summed and depends on an axis of the result: each
// element is one of the other operand, which is assumed to be finite, or 0. Returns false if
// neither is.
bool SetRowsOfOneHot(OpContext& c, const Shape& shape, Expr extent, const OperandIndices& indices);

// Does this for a MatMul of operands of rank 2 or more.
bool SetRowsOfOneHotMatMul(OpContext& c, const Shape& shape);
// Does this for a Gemm that is a plain product, of operands of rank 2.
bool SetRowsOfOneHotGemm(OpContext& c, const Shape& shape);

}  // namespace kvlift::sym::internal
