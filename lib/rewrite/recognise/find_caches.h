// Finds the caches of a lowered graph.
#pragma once

#include "rewrite/recognise/analysis.h"
#include "rewrite/types/options.h"
#include "rewrite/types/rule.h"

namespace kvlift {

// Fills in caches, updates, states and near misses of an analysis that has a graph and forms, and
// none of the four. Uses the options only, skip, mode and rounding; may replace the forms.
void FindCaches(RuleTable rules, const ConvertOptions& options, Analysis& a);

}  // namespace kvlift
