// Splits the index of a flattened axis into digits: i = b*(N*S) + n*S + s has the digits b, n and
// s, with the strides N*S, S and 1.
#pragma once

#include <optional>
#include <vector>

#include "absl/types/span.h"
#include "sym/expr/expr.h"

namespace kvlift::sym::internal {

// One digit of the index of an axis: 0 <= digit < extent, and the index is the sum of stride *
// digit over all digits of the axis.
struct Digit {
  int axis;
  Expr stride;
  Expr extent;
};

// Returns the digits into which the divisions (index div d) in `readers` split the index of an
// axis, the highest first. Returns a single digit, the index itself, if there are no such
// divisions, or if their divisors do not divide one another and the extent.
std::vector<Digit> DigitsOf(Pool& pool, int axis, Expr extent, Expr index,
                            absl::Span<const Expr> readers);

// Returns the index of `axis`, given a value index_of_digit[k] for each digit k of `digits`. Digits
// of other axes are ignored.
Expr IndexFromDigits(Pool& pool, absl::Span<const Digit> digits, int axis,
                     absl::Span<const Expr> index_of_digit);

// Returns digit k of its axis, whose index is `index`.
Expr DigitOfIndex(Pool& pool, absl::Span<const Digit> digits, size_t k, Expr index,
                  const Facts& facts);

// Splits e into q * stride + rest: each term that the stride divides goes into q, the others into
// rest. Selects are split in both branches. `rest` may be negative or larger than the stride.
// Returns nullopt if the stride is not one product with a positive coefficient.
struct Quotient {
  Expr q, rest;
};
std::optional<Quotient> DivideTerms(Pool& pool, Expr e, Expr stride);

}  // namespace kvlift::sym::internal
