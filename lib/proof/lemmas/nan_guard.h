// Lemma nan-guard. Where p = softmax(x) and x holds no NaN,
//
//   Where(IsNaN(p), 0, p)[t] = p[t]   if a key of the row is not hidden by -inf
//                            = 0      if all are
//
// which is what Attention-24 gives for both. Side condition: what is tested is the element that is
// handed on, and not another value. Without it the guard clears probabilities wherever the other
// value is NaN. Source: ONNX's texts of Softmax, IsNaN and Where; IEEE 754: -inf - (-inf) is NaN.
#pragma once

#include "sym/forms.h"

namespace kvlift {

// The element that a guard hands on, `select` being kSelect; null if it is no guard of that kind.
sym::Expr WithoutNanGuard(sym::Forms& forms, sym::Expr select);

}  // namespace kvlift
