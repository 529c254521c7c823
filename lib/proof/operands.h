// What equal elements of operands make of a node's results.
//
// A value of the conversion stands for one of the source's where their elements are the same, and
// may still have other extents (Sameness::kInCommon): as many rows as a cache has slots, or one per
// sequence where the source has one for all. Only some operators do not see that, and their results
// are the same in common only.
#pragma once

#include <vector>

#include "proof/correspondence.h"
#include "proof/equality.h"
#include "proof/pair.h"
#include "proof/sameness.h"

namespace kvlift {

// How the results of two nodes of the same operator and attributes are the same. same: how their
// operands are, none of which is kNone.
Sameness OfResults(const GraphPair& pair, const Correspondence& twins, Equality& equality,
                   NodeId mine, NodeId theirs, const std::vector<Sameness>& same);

}  // namespace kvlift
