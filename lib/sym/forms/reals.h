// Elements of float tensors as polynomials, for questions that only arithmetic answers: whether the
// values of a table repeat, whether a tensor is RoPE applied to another one.
#pragma once

#include "absl/types/span.h"
#include "sym/forms/forms.h"

namespace kvlift::sym {

// Returns the element of v at `at` as Forms::At does, but looks through Add, Sub, Mul and Neg of
// float tensors as well: the result is a polynomial over loads, in which equal numbers have one
// form. Cosines and sines are Apply("Cos", x) and Apply("Sin", x). Loads of `stops`, and operators
// more than 12 levels deep, stay loads. The result is equal as a real number; rounding is ignored.
// Operands are broadcast. Returns null if the rank of v is unknown.
Expr RealElement(Forms& forms, ValueId v, absl::Span<const Expr> at, const Facts& facts,
                 absl::Span<const ValueId> stops);

}  // namespace kvlift::sym
