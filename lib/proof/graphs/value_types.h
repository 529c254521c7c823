// Infers the types of values that a model does not declare, by symbolic shape propagation
// (sym/forms/forms.h).
#pragma once

#include <vector>

#include "ir/graph.h"

namespace kvlift {

// Returns the type of each value: the declared one, completed by the extents that the operators
// give. An extent that is neither a number nor a dimension of the model stays unknown; the shape is
// absent if the rank is not known. The graph's opset must be 13 or later.
std::vector<TensorType> TypesOf(const Graph& graph, const std::vector<ValueId>& values);

}  // namespace kvlift
