// Judges how the caches of a plan are stored: quantised or not, as tensors of their own or as parts
// of one tensor, and under which names. Internal to lib/rewrite.
#pragma once

#include <map>
#include <optional>
#include <string>

#include "rewrite/plan/conversion_plan.h"

namespace kvlift::internal {

struct JudgedStorage {
  std::optional<Finding> refusal;  // KV229, KV238 or KV241 to KV246; if set, the rest is not valid
  std::optional<PlannedQuantization> quantization;
  std::map<ValueId, std::string> names;
};

// `plan` must be complete except for its storage, and must not be refused.
JudgedStorage JudgeStorage(const Analysis& analysis, const ConversionPlan& plan);

}  // namespace kvlift::internal
