// Checks whether a relation (a manifest) fits the two models that it relates.
#pragma once

#include <string>

#include "contract/manifest.h"
#include "ir/graph.h"

namespace kvlift {

// Returns the first thing that does not fit, or empty: an input or output that the relation leaves
// out, or drops and feeds, a name that a model does not have, an id that no cache has or that two
// have, an input or output that is called a cache and is not that cache's own (nothing would
// compare it), a layout or an axis that the declared shape does not have. Layouts with groups
// (adapted_layouts.h) do not fit.
std::string Misfit(const Graph& source, const Graph& after, const Manifest& relation);

}  // namespace kvlift
