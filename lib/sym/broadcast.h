// Operands as operators broadcast them.
#pragma once

#include "absl/types/span.h"
#include "sym/forms.h"

namespace kvlift::sym {

// Element of v at the place `at` of a tensor that v is broadcast to. Null if v's rank is unknown or
// higher than that.
Expr BroadcastAt(Forms& forms, ValueId v, absl::Span<const Expr> at, const Facts& facts);

}  // namespace kvlift::sym
