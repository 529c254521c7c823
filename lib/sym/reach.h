// Branches of selects that no index reaches.
#pragma once

#include "sym/forms_engine.h"

namespace kvlift::sym::internal {

// e without branches that are taken at no place of the axes of constant, small extent: after
// i0 == 2 ? a : (i0 == 1 ? b : (i0 <= 0 ? c : d)) on an axis of 3, d is gone.
Expr WithoutUnreached(Pool& pool, Expr e, const Shape& extents);

}  // namespace kvlift::sym::internal
