// Lemma exact-cast. Where the type T holds every number of the type of x,
//
//   Cast<T>(x)[i] = x[i]
//
// and so for all operators that hand each element on as it is. Side condition: T holds every number
// of the type that the cast comes from; another cast rounds, truncates, wraps around or saturates,
// and positions, lengths and scores behind it are other ones from some number on. Source: ONNX's
// text of Cast; IEEE 754, bits and exponents of the formats (lib/sym/keeps_value.h).
#pragma once

#include "proof/grounds.h"
#include "sym/forms.h"

namespace kvlift {

// The element that e, a load of a node's result, is handed on from; null if the node does anything
// else. grounds: receives the lemma.
sym::Expr BeforeExactCast(sym::Forms& forms, sym::Expr e, const sym::Facts& facts,
                          Grounds* grounds);

}  // namespace kvlift
