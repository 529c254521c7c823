// Outputs of the source that are no caches and yet hold the slots of one, such as a second present
// that is written into the same past.
#pragma once

#include <string>
#include <vector>

#include "contract/manifest.h"
#include "proof/graphs/pair.h"
#include "proof/graphs/proof.h"

namespace kvlift {

// Returns the outputs that give the past of a cache of a fixed size, slot by slot, wherever
// nothing is written to it. What stands in a slot without a token means nothing in them.
std::vector<SlotOutput> SlotOutputsOf(const GraphPair& pair, const Manifest& relation);

}  // namespace kvlift
