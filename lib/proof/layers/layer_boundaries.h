// Boundaries between layers that were left out of a proof (proof/prove/folding.h).
#pragma once

#include <string>

#include "proof/correspondence/correspondence.h"
#include "proof/facts/nodes.h"
#include "proof/graphs/pair.h"

namespace kvlift {

// A value that enters a layer and the value that the layer passes on, by their names in each model.
struct LayerBoundary {
  std::string after_in, before_in, after_out, before_out;
};

// Returns why the induction over layers fails at a boundary; empty if it does not. It holds if both
// models have the same value at both places, and the value that leaves a layer has the shape and
// type of the value that enters it.
std::string WhyInductionFails(const LayerBoundary& boundary, const GraphPair& pair,
                              const Correspondence& twins, Nodes* nodes);

}  // namespace kvlift
