// Assumptions of forms about what the host feeds: numbers, such as positions that count up, and
// sizes, such as steps that stay inside a table.
#pragma once

#include <string>
#include <vector>

#include "sym/forms/forms.h"

namespace kvlift {

// Returns the assumptions so far that the host has to meet, in the order of the nodes. Leaves out
// equal extents, which operators check themselves, declared extents that broadcasting needs to be
// equal, assumptions that hold for every step with a token, and inequalities that follow from
// others. pasts: symbols of lengths, which may be 0.
std::vector<sym::Assumption> HostAssumptions(sym::Forms& forms,
                                             const std::vector<sym::DimSymbol>& pasts);

// Returns e in which each read of a vector that is assumed to count up is its first element plus
// the distance: pos[i2] becomes pos[0] + i2.
sym::Expr CountedUp(sym::Forms& forms, sym::Expr e);

}  // namespace kvlift
