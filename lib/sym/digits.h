// Indices read as numbers of several digits: i = b*(N*S) + n*S + s on a flattened axis.
#pragma once

#include <optional>
#include <vector>

#include "absl/types/span.h"
#include "sym/expr.h"

namespace kvlift::sym::internal {

// One digit of the index of an axis: 0 <= digit < extent, and the index is the sum of
// stride * digit over the axis' digits.
struct Digit {
  int axis;
  Expr stride;
  Expr extent;
};

// The digits by which `readers` take `index` apart (i div d), the highest first; one digit, the
// index itself, if they do not, or not in a way in which each stride divides the next.
std::vector<Digit> DigitsOf(Pool& pool, int axis, Expr extent, Expr index,
                            absl::Span<const Expr> readers);

// The index of `axis` from its digits, where digit k of `digits` is index_of_digit[k].
Expr IndexFromDigits(Pool& pool, absl::Span<const Digit> digits, int axis,
                     absl::Span<const Expr> index_of_digit);

// Digit k of the axis' index.
Expr DigitOfIndex(Pool& pool, absl::Span<const Digit> digits, size_t k, Expr index,
                  const Facts& facts);

// e = q * stride + rest, term by term; selects are split in their branches. nullopt if the stride
// is not one product.
struct Quotient {
  Expr q, rest;
};
std::optional<Quotient> DivideTerms(Pool& pool, Expr e, Expr stride);

}  // namespace kvlift::sym::internal
