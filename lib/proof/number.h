#pragma once

#include <optional>

#include "sym/forms.h"

namespace kvlift {

// A number that the graph holds or computes from such and from constant extents.
std::optional<double> NumberOf(sym::Forms& forms, ValueId v);

}  // namespace kvlift
