// Reductions that find out whether some number is infinite or NaN.
//
// Models in half precision clamp their hidden states if any of them overflowed (T5). One number
// then decides for all tokens and sequences; as long as all are finite, it decides nothing.
#pragma once

#include "ir/graph.h"
#include "sym/forms/forms.h"

namespace kvlift::sym {

// Returns true if a sum, maximum or minimum of the main graph is taken of nothing but results of
// IsInf and IsNaN, and is one constant where these are false everywhere, whatever the number of
// elements. Other reductions are not looked at: ReduceLogSumExp of zeros tells their number.
bool CountsNonFinite(Forms& forms, NodeId n);

}  // namespace kvlift::sym
