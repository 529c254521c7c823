// Tells whether two models compute their floating-point numbers by the same operators, so that a
// difference in their results is not due to rounding.
#pragma once

#include "contract/manifest.h"
#include "ir/graph.h"

namespace kvlift {

// Returns true if both graphs make every output that the relation compares by the same nodes from
// corresponding inputs, and differ in stored bools only, such as an entry of a mask. Results of
// equal models have equal bits then. Other numbers take part in arithmetic: a softmax, for one, is
// the same function for scores that are all larger by one, and rounds otherwise.
bool DifferInStoredBoolsOnly(const Graph& source, const Graph& after, const Manifest& relation);

}  // namespace kvlift
