// Lemma nan-guard. Where p = softmax(x) and x holds no NaN,
//
//   Where(IsNaN(p), 0, p)[t] = p[t]   if a key of the row is not hidden by -inf
//                            = 0      if all are
//
// which is what Attention-24 gives for both. Side conditions: what is tested is the element that is
// handed on, and not another value, or the guard clears probabilities wherever the other value is
// NaN; 0 takes its place; and x holds no NaN, which the ledger says. Source: ONNX's texts of
// Softmax, IsNaN and Where; IEEE 754: -inf - (-inf) is NaN.
#pragma once

#include <string>

#include "contract/assumptions.h"
#include "proof/grounds.h"
#include "sym/forms.h"

namespace kvlift {

// The element that a guard hands on, `select` being kSelect; null if it is no guard of that kind.
// grounds: receives the lemma.
sym::Expr WithoutNanGuard(sym::Forms& forms, sym::Expr select, Grounds* grounds);
// The last side condition. `attention`: whose scores.
Assumption ScoresAreNumbers(const std::string& attention);

}  // namespace kvlift
