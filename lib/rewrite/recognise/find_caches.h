// Finds the caches of a lowered graph.
#pragma once

#include "rewrite/recognise/analysis.h"
#include "rewrite/types/options.h"
#include "rewrite/types/rule.h"

namespace kvlift {

// Whether caches that TensorScatter writes already stay as they are (kStay), or are recognised like
// all others (kRecognise).
enum class WrittenCaches { kStay, kRecognise };

// Fills in caches, updates, states and near misses of an analysis, which must have a graph and
// forms, and none of these four yet. Uses the options only, skip, mode and rounding; may replace
// the forms.
void FindCaches(RuleTable rules, const ConvertOptions& options, WrittenCaches written, Analysis& a);

}  // namespace kvlift
