// Lemma nan-guard. If p = softmax(x) and x holds no NaN,
//
//   Where(IsNaN(p), 0, p)[t] = p[t]   if some key of the row is not hidden by -inf
//                            = 0      if all of them are
//
// Attention-24 gives the same in both cases. Side conditions: the element that is tested is the
// element that is passed on, or the guard would clear probabilities wherever another value is NaN;
// it is replaced by 0; and x holds no NaN, which enters the ledger. Source: ONNX Softmax, IsNaN and
// Where; IEEE 754: -inf - (-inf) is NaN.
#pragma once

#include <string>

#include "contract/assumptions.h"
#include "proof/graphs/grounds.h"
#include "sym/forms/forms.h"

namespace kvlift {

// Returns the element that a NaN guard passes on; null if `select`, of kind kSelect, is not such a
// guard. Adds the lemma to `grounds`.
sym::Expr WithoutNanGuard(sym::Forms& forms, sym::Expr select, Grounds* grounds);
// Returns the last side condition as a ledger entry. `attention` is the name of the attention's
// result.
Assumption ScoresAreNumbers(const std::string& attention);

}  // namespace kvlift
