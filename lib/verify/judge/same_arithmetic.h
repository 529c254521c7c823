// Tells whether two models compute their floating-point numbers by the same operators, so that a
// difference in their results is no rounding.
#pragma once

#include "contract/manifest.h"
#include "ir/graph.h"

namespace kvlift {

// Returns true if both graphs make every output that the relation compares by the same nodes from
// corresponding inputs, and differ in stored numbers only: in integers and bools of any number of
// constants, or in one constant of floating-point numbers, by more than a 256th of each number that
// differs. Two such constants might cancel each other, and a smaller difference might be rounding.
// Results of equal models have equal bits then, since integers round nothing.
bool DifferInStoredNumbersOnly(const Graph& source, const Graph& after, const Manifest& relation);

}  // namespace kvlift
