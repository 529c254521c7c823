// Decides how an analysis is converted: one TensorScatter per cache, one Attention per site, masks
// and positions computed from the write index. An attention that cannot be replaced stays and reads
// the valid rows of the buffers. Nothing is emitted.
#pragma once

#include "rewrite/plan/conversion_plan.h"
#include "rewrite/recognise/analysis.h"

namespace kvlift {

// Plans the conversion of every update of the analysis, of which there must be at least one. What
// cannot be converted is a refusal in the plan. The analysis stays as it is, except that its Forms
// may compute further forms and expressions.
ConversionPlan MakePlan(const Analysis& analysis, const ResolvedOptions& options);

}  // namespace kvlift
