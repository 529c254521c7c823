// Lemma longest-sequence. For one number n[b] per sequence, b = 0..B-1, and for every b,
//
//   max(n) = n[b] + k   with some k >= 0
//
// Hence a statement about n[b] + k for all k >= 0 holds for the maximum, and k is 0 for some b.
// Side conditions: the maximum is over the whole axis, and the axis is that of the sequences; a
// minimum or a mean is below some of the numbers. Source: the definition of a maximum.
#pragma once

#include "sym/forms/forms.h"

namespace kvlift {

// Returns the integer vector that a ReduceMax node takes the maximum of; kNoValue for any other
// node.
ValueId LargestOf(sym::Forms& forms, NodeId n);
// The symbol k >= 0 for the node.
sym::Expr MoreOfLongest(sym::Forms& forms, NodeId n);
// Returns e for the longest sequence, k = 0, if e contains exactly one such symbol; e itself
// otherwise. Valid for properties that are the same for all sequences.
sym::Expr AtLongest(sym::Pool& pool, sym::Expr e);

}  // namespace kvlift
