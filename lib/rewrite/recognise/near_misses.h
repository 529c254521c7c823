// Reports values that look like caches and are not: states of recurrences, presents without a past,
// new rows that the host puts behind the past, scatters into computed tensors, and inputs that a
// foreign operator may change in place.
#pragma once

#include "absl/container/flat_hash_set.h"
#include "base/findings.h"
#include "ir/graph.h"
#include "rewrite/recognise/candidates.h"
#include "sym/forms/forms.h"

namespace kvlift {

// Adds to found->states and found->near_misses. pasts: the inputs that are the past of a candidate
// or a state. paired: the outputs that need no report, since they belong to an input.
void ReportNearMisses(sym::Forms& forms, const absl::flat_hash_set<ValueId>& pasts,
                      const absl::flat_hash_set<ValueId>& paired, Candidates* found);

// Returns the graph input to which the graph itself appends exactly the rows of `output`, for
// example to attend to both; kNoValue if there is no such input.
ValueId PastOfNewRows(sym::Forms& forms, ValueId output);

// Returns KV220 for an output that holds only the new rows of `past`.
Finding NewRowsOnly(const Graph& graph, ValueId output, ValueId past);

}  // namespace kvlift
