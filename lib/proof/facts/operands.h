// Decides how results are the same if the operands of two nodes are.
//
// Operands with equal elements may still differ in extent (Sameness::kInCommon): the converted
// model may have as many rows as a cache has slots, or one row per sequence where the source has
// one for all. Only some operators keep such results equal in common: elementwise operators without
// a broadcast in one model only, running sums, and operators that treat each index of the differing
// axis alone.
#pragma once

#include <vector>

#include "proof/correspondence/correspondence.h"
#include "proof/correspondence/equality.h"
#include "proof/graphs/pair.h"
#include "proof/rows/sameness.h"

namespace kvlift {

// Returns how the results of two nodes with the same operator and attributes are the same. `same`:
// how each operand is the same; none of them is kNone. Returns kNone if that is not shown.
Sameness OfResults(const GraphPair& pair, const Correspondence& twins, Equality& equality,
                   NodeId mine, NodeId theirs, const std::vector<Sameness>& same);

}  // namespace kvlift
