// Lemma longest-sequence. For n[0], ..., n[B - 1], one number for each sequence, and every b
//
//   max(n) = n[b] + k   with some k >= 0
//
// so what holds at n[b] + k for all k holds at the largest of them; and k is 0 for some b. Side
// conditions: the maximum is over the whole axis, and the axis is that of the sequences; a minimum
// or a mean is below some of the numbers. Source: the definition of a maximum.
#pragma once

#include "sym/forms.h"

namespace kvlift {

// The vector that the node takes the maximum of; kNoValue if it does anything else.
ValueId LargestOf(sym::Forms& forms, NodeId n);
// The k of the node.
sym::Expr MoreOfLongest(sym::Forms& forms, NodeId n);
// What e is for a sequence whose k is 0, if there is one k only in e. It tells of what is the same
// for all sequences.
sym::Expr AtLongest(sym::Pool& pool, sym::Expr e);

}  // namespace kvlift
