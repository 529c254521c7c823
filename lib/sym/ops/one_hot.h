// Products with one-hot tensors, in which at most one element along an axis is 1 and all others are
// 0, as OneHot and Equal make them. A product that sums over that axis picks or writes rows; a sum
// over it says whether there is a 1.
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

// Returns the element that is 1 where `element`, 0 or 1 everywhere, is 0. Returns null for elements
// that may be other numbers.
Expr OneWhereZero(Pool& pool, Expr element);

// Returns the indices of the element of an operand, 0 or 1, that takes part in the element i0, i1,
// ... of a product, at `along` on the axis that is summed.
using OperandIndices = std::function<std::vector<Expr>(int operand, Expr along)>;

// Sets output 0, of this shape, of a product of two operands, if one of them is one-hot along the
// summed axis of `extent` elements and depends on an axis of the result. Each element is then an
// element of the other operand, which is assumed to be finite, or 0. Returns false if neither
// operand is one-hot.
bool SetRowsOfOneHot(OpContext& c, const Shape& shape, Expr extent, const OperandIndices& indices);

// Calls SetRowsOfOneHot for a MatMul of operands of rank 2 or more.
bool SetRowsOfOneHotMatMul(OpContext& c, const Shape& shape);
// Calls SetRowsOfOneHot for a Gemm of operands of rank 2 that is a plain product.
bool SetRowsOfOneHotGemm(OpContext& c, const Shape& shape);

}  // namespace kvlift::sym::internal
