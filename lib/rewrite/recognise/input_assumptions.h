// Assumptions of forms about what the host feeds: numbers, such as positions that count up, and
// sizes, such as steps that stay inside a table.
#pragma once

#include <string>
#include <vector>

#include "rewrite/recognise/analysis.h"
#include "sym/forms/forms.h"

namespace kvlift {

// Returns the assumptions so far that the host has to meet, in the order of the nodes. Leaves out
// equal extents, which operators check themselves, declared extents that broadcasting needs to be
// equal, assumptions that hold for every step with a token or follow from others, and that write
// indices are in their buffers, which KV301 says.
std::vector<sym::FormAssumption> HostAssumptions(const Analysis& analysis);

// Returns e in which each read of a vector that is assumed to count up is its first element plus
// the distance: pos[i2] becomes pos[0] + i2.
sym::Expr CountedUp(sym::Forms& forms, sym::Expr e);

}  // namespace kvlift
