// Removes branches of selects that are taken at no index.
#pragma once

#include "sym/forms/forms_engine.h"

namespace kvlift::sym::internal {

// Returns e without branches that are taken at no index of the axes whose extents are small
// constants: behind i0 == 2 ? a : (i0 == 1 ? b : (i0 <= 0 ? c : d)) on an axis of extent 3, d is
// removed.
Expr WithoutUnreached(Pool& pool, Expr e, const Shape& extents);

}  // namespace kvlift::sym::internal
