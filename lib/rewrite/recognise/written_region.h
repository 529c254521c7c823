// Reads the part of a present in which a step writes, and the elements that it writes.
#pragma once

#include <optional>
#include <vector>

#include "absl/types/span.h"
#include "sym/expr/expr.h"

namespace kvlift {

// The conditions under which an element is not that of the past, and the element in that case.
struct WrittenRegion {
  std::vector<sym::Expr> conditions;
  sym::Expr update = nullptr;
};

// Reads the element e of a present over axes of the extents `shape`. `past` is the element of the
// past at the same place. Returns nullopt if no part of e is the past's element, or all is.
std::optional<WrittenRegion> ReadWrittenRegion(sym::Pool& pool, sym::Expr e, sym::Expr past,
                                               absl::Span<const sym::Expr> shape);

}  // namespace kvlift
