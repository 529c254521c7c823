// What forms took for granted about numbers that the host feeds, such as positions that count up.
#pragma once

#include <string>
#include <vector>

#include "sym/forms.h"

namespace kvlift {

// The assumptions made so far that speak of graph inputs' content, in the order of the nodes.
std::vector<sym::Assumption> HostAssumptions(const sym::Forms& forms);

// e with every read of a vector that is assumed to count up written as its first element plus the
// distance: pos[i2] becomes pos[0] + i2.
sym::Expr CountedUp(sym::Forms& forms, sym::Expr e);

}  // namespace kvlift
