// What an operator needs of the numbers that it is fed, or it refuses to run, besides what its form
// takes for granted (sym/forms.h).
#pragma once

#include <string>
#include <vector>

#include "sym/forms.h"

namespace kvlift {

struct Need {
  sym::Expr condition = nullptr;  // for all values of its indices
  sym::Facts facts;               // about these
  std::string text;
};

// That steps and divisors of integers are not 0, that no extent is negative, that the parts of an
// axis are as long as the axis, that as many elements are asked for as there are. What holds
// whatever the sizes are is left out.
std::vector<Need> NeedsOf(sym::Forms& forms, NodeId node);

// Whether its form tells the extents of a result: what a node refuses is not known otherwise.
bool TellsExtents(const sym::Forms& forms, ValueId result, const sym::Form& form);

}  // namespace kvlift
