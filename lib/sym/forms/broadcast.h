// Reads an element of an operand as an operator broadcasts it.
#pragma once

#include "absl/types/span.h"
#include "sym/forms/forms.h"

namespace kvlift::sym {

// Returns the element of v at the position `at` of a tensor that v is broadcast to; `at` has one
// index per axis of that tensor. Axes of v with the constant extent 1 are read at 0; other extents
// are taken to be those of the tensor. Returns null if the rank of v is unknown or higher than that
// of the tensor.
Expr BroadcastAt(Forms& forms, ValueId v, absl::Span<const Expr> at, const Facts& facts);

}  // namespace kvlift::sym
