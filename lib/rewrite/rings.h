// Growing caches that become ring buffers: those that keep a window, and those of which attention
// reads a sliding window only.
#pragma once

#include "rewrite/analysis.h"

namespace kvlift {

// Sets `circular` and `visible` of the updates that can be rings. A cache that keeps all its rows
// can if every attention over it hides, from each query, the tokens that are more than a constant
// number back, and adds no bias. Caches with reordered sequences, or with the sequence axis first,
// cannot.
void MakeRings(Analysis& analysis);

}  // namespace kvlift
