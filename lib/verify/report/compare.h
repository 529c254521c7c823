// Compares two tensors element by element, within the bound that the oracle computed for each
// element. An element without a computed bound is compared within a bound that is fixed before the
// run. A computed bound is at least some units in the last place of its element, so that constants
// may be folded.
//
// The fixed bound of a float tensor is eps(type) * c * sqrt(n) * max|reference|, where n is the
// number of nodes of the graph: the rounding errors of n operators with a gain of about one add up
// like a random walk, and c (8, for half types 2) covers larger gains and long sums. A wrong
// rewrite moves outputs by a thousandth of their size or more; the mutants of each run check that.
// Integers, bools and infinities must be equal.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "exec/memory/tensor.h"

namespace kvlift {

struct Difference {
  std::vector<int64_t> element;  // index on each axis; empty if types or shapes differ
  double before = 0, after = 0;  // the element in the reference and in the other tensor
  std::string text;              // the two values, or the two types and shapes
};

struct Comparison {
  bool bitwise = true;  // all elements are equal numbers (-0 equals 0), or NaN in both
  // The largest |reference - actual|, absolute, relative to |reference| (where that is finite and
  // not 0), and in units in the last place of the reference; and the bound of the element whose
  // distance is the largest in terms of its bound.
  double max_abs = 0, max_rel = 0, max_ulp = 0, bound = 0;
  std::optional<Difference> difference;  // an element beyond its bound, or other types or shapes
  bool source_not_finite = false;        // the reference has NaN where `actual` has a number
  bool judged = true;                    // false: both tensors hold nothing but NaN
  double ratio = 0;                      // the largest |difference| / computed bound
  bool fixed = false;                    // an unequal element was judged by the fixed bound
};

// Compares `actual` with `reference`. source_nodes: n of the fixed bound. slack: doubles of the
// reference's shape, the distance that rounding allows for each element, infinite where it is not
// known. An absent slack, or one of another shape, leaves the fixed bound.
Comparison Compare(const exec::View& reference, const exec::View& actual, int source_nodes,
                   const exec::View& slack = {});
// Returns the bound that Compare uses for each element: doubles of the reference's shape, NaN where
// the reference is NaN.
exec::Tensor BoundsOf(const exec::View& reference, int source_nodes, const exec::View& slack = {});
// Compares as Compare does, within some units in the last place of each element instead of bounds.
Comparison CompareNarrowly(const exec::View& reference, const exec::View& actual, int source_nodes,
                           const exec::View& slack = {});
using CompareFn = Comparison (*)(const exec::View& reference, const exec::View& actual,
                                 int source_nodes, const exec::View& slack);

// Returns the index on each axis of the element at `flat` in row-major order.
std::vector<int64_t> ElementAt(const exec::Shape& shape, int64_t flat);

// Returns the distance between 1 and the next larger number of float64, float16 or bfloat16; for
// any other type that of float32.
double EpsilonOf(int32_t type);

// Returns true if type, shape and all bytes are equal.
bool SameBytes(const exec::View& a, const exec::View& b);
// Returns true if type, shape and all elements are equal; unlike SameBytes it takes -0 for 0.
bool SameNumbers(const exec::View& a, const exec::View& b);

}  // namespace kvlift
