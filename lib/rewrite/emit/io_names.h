// Gives the inputs and outputs of caches the names that a plan has for them.
#pragma once

#include "absl/status/status.h"
#include "rewrite/emit/emission.h"
#include "rewrite/plan/conversion_plan.h"

namespace kvlift {

// Renames pasts and presents as ConversionPlan::names says. graph: that of the plan's analysis.
absl::Status NameCaches(const Graph& graph, const ConversionPlan& plan, Emission* emission);

}  // namespace kvlift
