// Turns an analysis into a patch and a manifest: one TensorScatter per cache, one Attention per
// site, masks and positions computed from the write index. An attention that cannot be replaced
// stays and reads the valid rows of the buffers.
#pragma once

#include "absl/status/statusor.h"
#include "rewrite/plan/conversion_plan.h"
#include "rewrite/recognise/analysis.h"

namespace kvlift {

// Plans the conversion of every update of the analysis, of which there must be at least one. What
// cannot be converted is a refusal in the plan; an error is a bug of kvlift.
absl::StatusOr<ConversionPlan> MakePlan(Analysis& analysis, const ConvertOptions& options);

}  // namespace kvlift
