#pragma once

#include <optional>

#include "sym/forms/forms.h"

namespace kvlift {

// Returns the number that a value of one element always holds: a constant, a constant extent, or
// what Cast, CastLike, Sqrt, Reciprocal, Mul, Div, Add and Pow make of such numbers in a float
// type, each result rounded to its type. Returns nullopt for any other value.
std::optional<double> NumberOf(sym::Forms& forms, ValueId v);

}  // namespace kvlift
