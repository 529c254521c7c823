// Evaluates one-element tensors that the graph computes from constants and static dimensions only,
// such as a scale 1/sqrt(D).
#pragma once

#include <optional>

#include "ir/graph.h"
#include "sym/forms/forms.h"

namespace kvlift {

// Evaluates Constant, Cast, Sqrt, Reciprocal, Neg, Exp, Add, Sub, Mul, Div, Pow and data movement,
// and rounds each result to its element type (16-bit floats to float32). Returns nullopt if v has
// more than one element, depends on anything that is not static, or has another type than floats of
// 16 bits or more, int32 and int64.
std::optional<double> ScalarConstant(sym::Forms& forms, ValueId v);

}  // namespace kvlift
