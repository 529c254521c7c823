// Simplifies extents that are clipped to the size of a table, such as the columns min(128, P + S)
// of a Slice of a stored mask. An operator that combines them with P + S columns runs for P + S <=
// 128 only, and under such bounds the forms of other extents become simpler. Internal to lib/sym.
#pragma once

#include <vector>

#include "sym/expr/expr.h"

namespace kvlift::sym::internal {

class ClippedExtents {
 public:
  explicit ClippedExtents(Pool& pool) : pool_(pool) {}

  // Takes a predicate as true from now on. Only inequalities with a number are of use, such as
  // P + S <= 128; others are ignored, as are those behind the first 64.
  void Take(Expr predicate);

  // Returns an expression that is equal to e wherever all predicates that were taken hold: branches
  // that they exclude are left out.
  Expr Simplified(Expr e);

  // Returns the predicate y <= c if x is min(c, y) with an integer c >= 2. A broadcast of x and y
  // runs under this condition only: where y exceeds c, both differ and neither is 1. Returns null
  // for other extents, and if the condition is taken already.
  Expr BoundOfBroadcast(Expr x, Expr y);

  // Returns an inequality under which the extents a and b, which an operator requires to be equal,
  // are equal. It comes from a condition in a or b. Returns null if no such inequality is found.
  // Where the inequality does not hold, a and b differ if all sizes are at least 1; this is tried
  // at sizes around the number in the inequality.
  Expr BoundOfEqual(Expr a, Expr b);

 private:
  // Returns true if a and b differ at all tried sizes that do not meet the bound.
  bool DifferOutside(Expr bound, Expr a, Expr b);
  Expr Sum(Expr e);
  Expr Select(Expr e);
  // Return true if g <= 0 contradicts h <= 0, or any predicate that was taken, or if both branches
  // are equal wherever both hold.
  bool Excludes(Expr h, Expr g, Expr then, Expr otherwise);
  bool IsExcluded(Expr g, Expr then, Expr otherwise);

  Pool& pool_;
  std::vector<Expr> taken_;
};

}  // namespace kvlift::sym::internal
