// Finds readers of caches whose rows lie in another order in the result than in the source.
#pragma once

#include <optional>

#include "absl/types/span.h"
#include "rewrite/judge/plan_basis.h"

namespace kvlift::internal {

// Returns KV214 if anything but an attention reads rows of a cache that shifts or becomes a ring.
// All attentions must be replaced. roots: values of the source that new nodes read.
std::optional<Finding> MovedRowsReadElsewhere(const PlanBasis& s, absl::Span<const ValueId> roots);

}  // namespace kvlift::internal
