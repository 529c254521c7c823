// Graphs that return only the new rows of a cache: the host puts them behind the past.
#pragma once

#include "sym/forms/forms.h"

namespace kvlift {

// Returns the graph input behind which the graph puts exactly the rows that a graph output holds,
// to read both; kNoValue if the graph puts them behind no input.
ValueId PastOfNewRows(sym::Forms& forms, ValueId output);

}  // namespace kvlift
