// Graphs that return only the new rows of a cache: the host puts them behind the past.
#pragma once

#include "base/findings.h"
#include "ir/graph.h"
#include "sym/forms/forms.h"

namespace kvlift {

// Returns the graph input to which the graph itself appends exactly the rows of `output`, for
// example to attend to both; kNoValue if there is no such input.
ValueId PastOfNewRows(sym::Forms& forms, ValueId output);

// Returns KV220 for an output that holds only the new rows of `past`.
Finding NewRowsOnly(const Graph& graph, ValueId output, ValueId past);

}  // namespace kvlift
