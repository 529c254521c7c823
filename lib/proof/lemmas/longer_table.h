// Lemma longer-table. Where x[r] = y[r] for all rows r that y has,
//
//   Gather(x, i) = Gather(y, i)
//
// Side conditions: i >= 0, for an index from the end depends on the number of rows; and x has at
// least as many rows as y, or an index that y has fails in x. Source: ONNX's text of Gather.
#pragma once

#include "proof/correspondence.h"
#include "proof/equality.h"

namespace kvlift {

// indices: of the conversion's Gather. A host's own indices are taken to count from the front,
// which enters the ledger.
bool LooksUpInLongerTable(sym::Forms& forms, const Correspondence& twins, Equality& equality,
                          ValueId indices, sym::Expr their_rows, sym::Expr my_rows);

}  // namespace kvlift
