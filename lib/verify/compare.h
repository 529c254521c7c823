// Compares tensors element by element: with a bound that the oracle computed for the element, or,
// where there is none, with one that is fixed before the run.
//
// The fixed bound of a float tensor is eps(type) * c * sqrt(n) * max|reference|, with n the number
// of nodes of the source graph: rounding errors of n operators that are carried on with a gain of
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
  double ratio = 0;                      // largest |difference| / computed bound
  bool fixed = false;                    // some elements were held against the fixed bound
};

// `slack`: per element, how far both may be from each other by rounding; infinite where that is not
// known; absent where nothing is.
Comparison Compare(const exec::View& reference, const exec::View& actual, int source_nodes,
                   const exec::View& slack = {});
using CompareFn = Comparison (*)(const exec::View& reference, const exec::View& actual,
                                 int source_nodes, const exec::View& slack);

// The distance of 1 and the next number of a float type; that of float32 for other types.
double EpsilonOf(int32_t type);

bool SameBytes(const exec::View& a, const exec::View& b);
// As SameBytes, but -0 is 0.
bool SameNumbers(const exec::View& a, const exec::View& b);

}  // namespace kvlift
