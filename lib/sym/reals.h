// The real number that an element of a float tensor is, for what only arithmetic can tell: that a
// table repeats itself, that pairs are rotated.
#pragma once

#include "absl/types/span.h"
#include "sym/forms.h"

namespace kvlift::sym {

// Element of v at `at`, as Forms::At, but looking through sums, products and signs as well: a
// polynomial over loads, in which equal numbers look equal. Cosines and sines are
// Apply("Cos", number). Elements of `stops`, and what lies deeper than rotations do, stay loads.
// Equal as real numbers: rounding is not in it. Null if v's rank is unknown.
Expr RealElement(Forms& forms, ValueId v, absl::Span<const Expr> at, const Facts& facts,
                 absl::Span<const ValueId> stops);

}  // namespace kvlift::sym
