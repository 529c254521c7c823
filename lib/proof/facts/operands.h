// Decides how far the results of two nodes agree (Sameness), given how far their operands agree.
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

// Returns how far the results of two nodes with the same operator and attributes agree; kNone if
// that is not shown. `same` says it for each operand; no entry is kNone.
Sameness OfResults(const GraphPair& pair, const Correspondence& twins, Equality& equality,
                   NodeId mine, NodeId theirs, const std::vector<Sameness>& same);

}  // namespace kvlift
