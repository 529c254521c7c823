// What forms took for granted about what the host feeds: numbers, such as positions that count up,
// and sizes, such as steps that stay inside of a table.
#pragma once

#include <string>
#include <vector>

#include "sym/forms.h"

namespace kvlift {

// The assumptions made so far that a host has to keep to, in the order of the nodes: all but equal
// extents, which operators ask for, and what holds for every step that has a token. pasts: symbols
// of lengths that may be 0.
std::vector<sym::Assumption> HostAssumptions(sym::Forms& forms,
                                             const std::vector<sym::DimSymbol>& pasts);

// e with every read of a vector that is assumed to count up written as its first element plus the
// distance: pos[i2] becomes pos[0] + i2.
sym::Expr CountedUp(sym::Forms& forms, sym::Expr e);

}  // namespace kvlift
