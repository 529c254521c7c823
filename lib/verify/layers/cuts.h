// Finds the places between two layers where a source and its conversion can be cut.
//
// A cut is a set of values that both models have under the same names, usually the hidden states.
// All that later nodes read of the caches in front of the cut, they read through these values.
// Nothing here proves that the values are equal: that follows if each piece between two cuts is the
// same in both models.
#pragma once

#include <string>
#include <vector>

#include "contract/manifest.h"
#include "ir/graph.h"

namespace kvlift {

using Cut = std::vector<std::string>;  // names of values, in the order of their nodes

// Returns the cuts in the order of the graph, with at most three values each: those between layers
// and, where layers repeat, the hidden states that enter the first layer and that leave the last.
// Empty if none is found or if a model has nodes with bodies (If, Loop, Scan).
std::vector<Cut> FindCuts(const Graph& before, const Graph& after, const Manifest& relation);

}  // namespace kvlift
