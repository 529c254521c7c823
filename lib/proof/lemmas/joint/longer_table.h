// Lemma longer-table. If x[r] = y[r] for all rows r of y,
//
//   Gather(x, i) = Gather(y, i)
//
// Side conditions: i >= 0, because an index from the end depends on the number of rows; and x has
// at least as many rows as y, or an index that is valid in y fails in x. Source: ONNX Gather.
#pragma once

#include "proof/correspondence/correspondence.h"
#include "proof/correspondence/equality.h"

namespace kvlift {

// Returns true if the lemma applies to a Gather of the converted model with these indices, a table
// of `my_rows` rows, and `their_rows` rows in the source. Indices that the host feeds are assumed
// to count from the front, which enters the ledger.
bool LooksUpInLongerTable(sym::Forms& forms, const Correspondence& twins, Equality& equality,
                          ValueId indices, sym::Expr their_rows, sym::Expr my_rows);

}  // namespace kvlift
