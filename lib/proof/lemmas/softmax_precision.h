// Lemma softmax-precision. With softmax_precision = p, Attention-24 on operands of type T computes
//
//   Cast<T>(Softmax(Cast<p>(scores))) times value
//
// So a rounding cast of the scores to the softmax's type, and one of the weights to the type of the
// values, belong to the operator. Side conditions: the first cast is the last step before the
// softmax, and the second goes from the softmax's type to that of the product. Any other rounding
// cast changes scores or weights that the operator leaves as they are. Source: ONNX Attention-24,
// attribute softmax_precision.
#pragma once

#include <cstdint>

#include "sym/forms/forms.h"

namespace kvlift {

// Returns true if the node rounds scores to the type that the softmax is computed in.
bool IsCastOfScores(sym::Forms& forms, NodeId node, int32_t softmax_type);
// Returns true if the node rounds a softmax's result to the type of its product with the values.
bool IsCastOfWeights(sym::Forms& forms, NodeId node, int32_t value_type);

}  // namespace kvlift
