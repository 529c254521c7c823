// Rows that the source moves and the conversion does not.
#pragma once

#include <optional>

#include "rewrite/plan_state.h"

namespace kvlift::internal {

// KV214 if anything but attention, all of which is taken over, reads rows of a cache that shifts:
// it would find them in another order.
std::optional<Finding> MovedRowsReadElsewhere(const PlanState& s);

}  // namespace kvlift::internal
