// Compares tensors element by element with a bound that is fixed before the run.
//
// The bound of a float tensor is eps(type) * c * sqrt(n) * max|reference|, with n the number of
// nodes of the source graph: rounding errors of n operators that are carried on with a gain of
// about one add up like a random walk, c covers gains above one and long sums. Wrong rewrites move
// outputs by a thousandth of their size and more, which the mutants of each run show anew.
// Integers, bools and infinities must be equal.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "exec/tensor.h"

namespace kvlift {

struct Difference {
  std::vector<int64_t> element;
  double before = 0, after = 0;
  std::string text;  // shape, type or value
};

struct Comparison {
  bool bitwise = true;
  double max_abs = 0, max_rel = 0, max_ulp = 0, bound = 0;
  std::optional<Difference> difference;  // beyond the bound, or not comparable
  bool source_not_finite = false;        // NaN in the reference where there is a number
  bool judged = true;                    // false: there is nothing but NaN on both sides
};

Comparison Compare(const exec::View& reference, const exec::View& actual, int source_nodes);

bool SameBytes(const exec::View& a, const exec::View& b);
// As SameBytes, but -0 is 0.
bool SameNumbers(const exec::View& a, const exec::View& b);

}  // namespace kvlift
