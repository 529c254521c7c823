// Declared types for values that a model leaves undeclared, from the symbolic forms of its graph.
#pragma once

#include <vector>

#include "ir/graph.h"

namespace kvlift {

// The type of each value: what the model declares, completed by the extents that the value's
// operators give it. Where an extent is neither a number nor a dimension of the model, it is left
// unknown; the shape is absent where the rank is not known.
std::vector<TensorType> TypesOf(const Graph& graph, const std::vector<ValueId>& values);

}  // namespace kvlift
