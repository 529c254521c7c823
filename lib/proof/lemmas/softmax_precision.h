// Lemma softmax-precision. With softmax_precision = p, Attention-24 on operands of type T is
//
//   Cast<T>(Softmax(Cast<p>(scores))) times value
//
// so a rounding cast in front of a softmax to the type that it is computed in, and one behind it to
// the type of the values, are the operator's own. Side conditions: the one in front is the last
// step before the softmax, and the one behind goes from the softmax's type to that of the product.
// Any other cast that rounds changes scores or weights that the operator does not. Source: ONNX's
// text of Attention-24, attribute softmax_precision.
#pragma once

#include <cstdint>

#include "sym/forms.h"

namespace kvlift {

// Whether the node rounds scores to the type of the softmax that reads it.
bool IsCastOfScores(sym::Forms& forms, NodeId node, int32_t softmax_type);
// Whether the node rounds a softmax's result to the type of the product with the values.
bool IsCastOfWeights(sym::Forms& forms, NodeId node, int32_t value_type);

}  // namespace kvlift
