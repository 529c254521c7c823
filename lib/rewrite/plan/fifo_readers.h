// Finds readers of caches whose rows lie in another order in the result than in the source.
#pragma once

#include <optional>

#include "rewrite/plan/plan_state.h"

namespace kvlift::internal {

// Returns KV214 if anything but an attention reads rows of a cache that shifts or becomes a ring.
// All attentions must be replaced.
std::optional<Finding> MovedRowsReadElsewhere(const PlanState& s);

}  // namespace kvlift::internal
