// Where layers that were left out stood (proof/folding.h).
#pragma once

#include <string>

#include "proof/correspondence.h"
#include "proof/nodes.h"
#include "proof/pair.h"

namespace kvlift {

// One value that enters a layer and what leaves it for the next, by their names in each model.
struct Seam {
  std::string after_in, before_in, after_out, before_out;
};

// What is not so of a seam. Empty if both models have the same values at both places, and these are
// of one shape and type: what holds of the layer holds of the next.
std::string BrokenSeam(const Seam& seam, const GraphPair& pair, const Correspondence& twins,
                       Nodes* nodes);

}  // namespace kvlift
