// Whether a relation fits the two models it is about.
#pragma once

#include <string>

#include "contract/manifest.h"
#include "ir/graph.h"

namespace kvlift {

// What does not fit, or empty: inputs and outputs without a place, names that a model lacks, ids
// that no cache has, an output that is called a cache but is not that cache's output (nothing would
// compare it), a layout or axis that its tensor does not have.
std::string Misfit(const Graph& source, const Graph& after, const Manifest& relation);

}  // namespace kvlift
