// Growing caches that become rings: those that keep a window, and those of which attention sees a
// window only.
#pragma once

#include "rewrite/analysis.h"

namespace kvlift {

// Marks the updates that may be rings. A cache that keeps all its rows may if every mask over it
// hides, from each query, what is more than a constant number of tokens back.
void MakeRings(Analysis& analysis);

}  // namespace kvlift
