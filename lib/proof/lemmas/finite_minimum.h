// Lemma finite-minimum. If a query sees a key, and hidden keys have a number m added to their
// scores, or m instead of a score,
//
//   softmax(x + m * hidden) = softmax of x over the keys that are not hidden
//
// in floating-point arithmetic, because exp(d) is 0 for d <= -745 in float64 and for d <= -104 in
// float32. Side conditions: at least one key of the row is not hidden, or the result is the average
// of all values instead of 0; and some visible key scores high enough, and no hidden key scores so
// high before m is added, that hidden keys stay that far below. Source: IEEE 754, the smallest
// subnormal numbers of both types.
#pragma once

#include <set>
#include <string>

#include "contract/assumptions.h"
#include "sym/expr/expr.h"

namespace kvlift {

// Returns true if a number that is added to a score, or replaces it, is taken to hide the key:
// -inf, and finite numbers of -1e4 or less under the conditions of the lemma.
bool HidesKey(double number);
// Returns true if the first side condition is shown: each query sees the key of its own token, or
// the first key. `visible` is a predicate over i0..i3 with these extents.
bool SeesAKey(sym::Pool& pool, sym::Expr visible, const sym::Facts& extents);

// Returns the second side condition as a ledger entry, for the largest of the finite numbers that
// hide keys (`numbers`, not empty). `attention` is the name of the attention's result. `sink`: a
// sink counts as a key that is not hidden (sink_key.h).
Assumption HiddenKeysScoreLow(const std::string& attention, const std::set<double>& numbers,
                              bool sink);

// Returns the ledger entry that each query of the attention sees a key, or if `sink` a sink, that
// scores more than -most, and that no hidden key scores more than `most` before it is hidden.
Assumption ScoresWithin(AssumptionKind kind, const std::string& attention, double most, bool sink);

}  // namespace kvlift
