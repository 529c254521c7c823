// Whether equal elements of operands make equal results.
//
// A value of the conversion stands for one of the source's where their elements are the same, and
// may still have more rows: as many as a cache has slots, or one per sequence where the source has
// one for all. Only some operators do not see that.
#pragma once

#include "proof/correspondence.h"
#include "proof/pair.h"

namespace kvlift {

// Of two nodes of the same operator, whose operands have the same elements.
bool SameExtents(const GraphPair& pair, const Correspondence& twins, NodeId mine, NodeId theirs);

}  // namespace kvlift
