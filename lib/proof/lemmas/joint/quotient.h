// Lemma quotient. x * (1 / y) = x / y, element by element, with x and y broadcast as ONNX does.
// Side conditions: all of it is in one float type; 1 / y is finite (in the ledger), which it is not
// for y below the least normal number; what is inverted is the divisor. Source: ONNX Div-14, Mul-14
// and Reciprocal-13.
#pragma once

#include "absl/functional/function_ref.h"
#include "proof/correspondence/correspondence.h"
#include "proof/graphs/pair.h"

namespace kvlift {

// Returns true if one of the two nodes is a quotient and the other one the product with an inverse
// that it equals: `mine` of the converted model, and `theirs` of the source. `same` compares an
// operand of the converted model with one of the source, and rests on what it compared. The result
// rests on finite inverses.
bool IsSameQuotient(const GraphPair& pair, const Correspondence& twins, NodeId mine, NodeId theirs,
                    absl::FunctionRef<bool(ValueId mine, ValueId theirs)> same);

}  // namespace kvlift
