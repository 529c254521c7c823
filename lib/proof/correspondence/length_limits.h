// Bounds on the lengths of a step that are assumed of the source, as data.
#pragma once

#include <vector>

#include "proof/correspondence/correspondence.h"
#include "proof/graphs/pair.h"
#include "proof/graphs/proof.h"

namespace kvlift {

// Returns the bounds on P and S that the source's forms assume, such as P + S <= 64 where a table
// of 64 rows is cut at P + S. Bounds that name other sizes are left out.
std::vector<LengthLimit> LengthLimitsOf(const GraphPair& pair, const Correspondence& twins);

}  // namespace kvlift
