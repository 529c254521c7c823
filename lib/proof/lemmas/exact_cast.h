// Lemma exact-cast. If type T can represent every number of the type of x,
//
//   Cast<T>(x)[i] = x[i]
//
// The lemma also covers all other operators that pass elements on unchanged. Side condition: T can
// represent every number of the type that is cast. Any other cast rounds, truncates, wraps around
// or saturates, so that positions, lengths and scores behind it differ from some number on. Source:
// ONNX Cast; IEEE 754, significands and exponents of the formats (lib/sym/forms/keeps_value.h).
#pragma once

#include "proof/graphs/grounds.h"
#include "sym/forms/forms.h"

namespace kvlift {

// If e is a load of a node's result and the node passes its elements on exactly, returns the
// element of the operand; null otherwise. Adds the lemma to `grounds`.
sym::Expr BeforeExactCast(sym::Forms& forms, sym::Expr e, const sym::Facts& facts,
                          Grounds* grounds);

}  // namespace kvlift
