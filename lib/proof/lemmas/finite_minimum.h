// Lemma finite-minimum. Where a query sees a key, and m is a number that is added to the scores of
// others or stands in their place,
//
//   softmax(x + m * hidden) = softmax over the keys that are not hidden of x
//
// in the arithmetic of the machine, for exp(d) is 0 from d = -745 on in float64, and from d = -104
// on in float32. Side conditions: a key of the row is not hidden, or the average of all values
// takes the place of 0; and some key that is seen scores so much, and no hidden key so much before m
// is added, that hidden ones stay that far below. Source: IEEE 754, the smallest subnormal numbers
// of both types.
#pragma once

#include <set>
#include <string>

#include "contract/assumptions.h"
#include "sym/expr.h"

namespace kvlift {

// Whether a number that is added to a score, or stands in its place, is taken to hide the key: -inf
// does, and so do finite ones that are low enough, on the conditions of the lemma.
bool HidesKey(double number);
// The first side condition: whether each query sees the key of its own token, or the first key.
// visible: at i0..i3, of as many queries and keys as the extents say.
bool SeesAKey(sym::Pool& pool, sym::Expr visible, const sym::Facts& extents);

// The second side condition, for the largest of the numbers. `attention`: whose scores.
Assumption HiddenKeysScoreLow(const std::string& attention, const std::set<double>& numbers);

}  // namespace kvlift
