// The value of a one-element tensor that real arithmetic computes from constants and static
// dimensions only, such as a scale 1/sqrt(D) that the graph works out at run time.
#pragma once

#include <optional>

#include "ir/graph.h"
#include "sym/forms.h"

namespace kvlift {

// Evaluates Constant, Cast, Sqrt, Reciprocal, Neg, Exp, Add, Sub, Mul, Div, Pow and data movement,
// each rounded to its element type (float32 and float64; half types through float32). Absent if v
// has more than one element or depends on anything that is not static.
std::optional<double> ScalarConstant(sym::Forms& forms, ValueId v);

}  // namespace kvlift
