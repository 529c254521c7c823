// Helpers that the functions for elementwise operators share.
#pragma once

#include <functional>

#include "absl/types/span.h"
#include "sym/forms/forms_engine.h"

namespace kvlift::sym::internal {

// Returns the result's element from elements of the operands without selects; null if it is opaque.
using Leaf = std::function<Expr(absl::Span<const Expr>, const Facts&)>;

// Sets output 0 to an elementwise result of the first `inputs` inputs: broadcasts them and applies
// `leaf` to their elements, below the selects of these. Leaves output 0 unset if a rank is not
// known or the shapes do not fit.
void Elementwise(OpContext& c, int inputs, const Leaf& leaf);

// Returns true for int32 and int64.
bool IsWideInteger(int32_t type);

// Returns true if e is a condition whose truth is not known.
bool IsTruth(Expr e);

}  // namespace kvlift::sym::internal
