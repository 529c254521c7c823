// Gives values the layout that a cache has in the result (rewrite/plan/placement.h), and takes it
// back. Internal to lib/rewrite.
#pragma once

#include <string>

#include "rewrite/emit/emit_state.h"

namespace kvlift::internal {

// ToTargetLayout transposes or reshapes `value` from the layout of the source's cache to that of
// the result; ToSourceLayout does the reverse. Both return `value` itself if the layouts are the
// same.
std::string ToTargetLayout(EmitState& state, const PlannedCache& cache, const std::string& value);
std::string ToSourceLayout(EmitState& state, const PlannedCache& cache, const std::string& value);
// Returns [B, S, N*D] from [B, N, S, D].
std::string JoinHeads(EmitState& state, const std::string& value, int64_t heads, int64_t size);

}  // namespace kvlift::internal
