// Where a source and its conversion can be cut between two layers.
//
// A cut is a set of values that both models have under the same names, through which everything
// passes that depends on the contents of the caches in front of it. Nothing here says that the
// values are equal: that follows if each piece between two cuts is the same in both models.
#pragma once

#include <string>
#include <vector>

#include "contract/manifest.h"
#include "ir/graph.h"

namespace kvlift {

using Cut = std::vector<std::string>;  // names of values, in the order of their nodes

// The cuts in the order of the graph; empty where none is found, and for models with branches or
// loops. Where layers repeat, the hidden states that enter the first of them and leave the last of
// them are cuts as well.
std::vector<Cut> FindCuts(const Graph& before, const Graph& after, const Manifest& relation);

}  // namespace kvlift
