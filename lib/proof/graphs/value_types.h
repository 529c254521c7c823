// Types of values that a model leaves undeclared, by shape propagation.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ir/graph.h"

namespace kvlift {

// Returns the type of each value: the declared one, completed by the extents that the operators
// give. An extent that is neither a number nor a dimension of the model stays unknown; the shape is
// absent if the rank is not known. The graph's opset must be 13 or later.
std::vector<TensorType> TypesOf(const Graph& graph, const std::vector<ValueId>& values);

// Returns the element type of which the numbers of a source's past are in every step that the proof
// covers (sym::NarrowerTypeOfPast); UNDEFINED if they may be any numbers of the declared type.
int32_t NumbersOfPast(const Graph& source, const std::string& past);

}  // namespace kvlift
