// Evaluates values of one element that are the same in every step.
#pragma once

#include <optional>

#include "sym/forms/forms.h"

namespace kvlift {

// Returns the number that a value of one element always holds: a constant, a constant extent, or
// the result of Cast, CastLike, Sqrt, Reciprocal, Mul, Div, Add or Pow on such numbers in a float
// type, each rounded to its type. Returns nullopt for any other value.
std::optional<double> NumberOf(sym::Forms& forms, ValueId v);

}  // namespace kvlift
