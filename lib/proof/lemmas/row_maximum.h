// Lemma row-maximum. For a row x of scores,
//
//   softmax(x - max(x)) = softmax(x)
//
// because softmax does not change when one number is subtracted from all scores of a row. Side
// conditions: the maximum is over the axis of the softmax, so that it is one number for the row; it
// is subtracted from all scores of the softmax, that of a sink included; and no softcap follows,
// which is not linear. Source: ONNX Softmax-13, which subtracts the maximum itself, and
// ReduceMax-20.
#pragma once

#include "ir/graph.h"
#include "proof/graphs/grounds.h"
#include "sym/forms/forms.h"

namespace kvlift {

// Returns x if the value is x - max(x) along the last axis; kNoValue for all other values. Adds the
// lemma to `grounds`.
ValueId WithoutRowMaximum(sym::Forms& forms, ValueId value, Grounds* grounds);

}  // namespace kvlift
