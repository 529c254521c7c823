// Dimensions that a model names although its operators run with one size only.
//
// Exporters leave names where a size is a constant: a past of shape [B, "heads", P, "size"] whose
// new rows have 2 heads of 12 elements runs with heads = 2 and size = 12 alone, since Concat needs
// equal extents on its other axes. Declaring the numbers excludes no step that the model can run.
// An operator that broadcasts also runs where a size is 1; a name that is spelled as a number, such
// as "16", is then taken to be that number.
#pragma once

#include <vector>

#include "ir/declared_sizes.h"
#include "ir/graph.h"

namespace kvlift::sym {

// Returns the dim_params of graph inputs that an operator of the main graph makes equal to a
// positive number in every run, each once. Names that an input of integers or bools declares are
// left out, because they count tokens and sequences. Only a few nodes behind each input are
// examined, so a size may be missed.
std::vector<NamedSize> FixedSizesOf(const Graph& graph);

}  // namespace kvlift::sym
