// Judges how each cache is written: at which slots, and where its new rows come from. Internal to
// lib/rewrite.
#pragma once

#include <optional>
#include <vector>

#include "rewrite/judge/plan_basis.h"

namespace kvlift::internal {

struct JudgedCaches {
  std::vector<PlannedWrite> writes;  // by index of Analysis::updates; valid without a refusal
  std::optional<Finding> refusal;    // KV202, KV204 or KV217
};
JudgedCaches JudgeCaches(const PlanBasis& s);

// Returns ConversionPlan::capacity_cache.
int CapacityCache(const PlanBasis& s);

}  // namespace kvlift::internal
