// Checks indices into tables: where the source runs, the converted model must not fail because an
// index is out of range.
#pragma once

#include "proof/correspondence/correspondence.h"
#include "proof/correspondence/equality.h"
#include "proof/facts/unmet_conditions.h"
#include "proof/graphs/pair.h"

namespace kvlift {

// Returns the Gathers and scatters of the converted model whose indices are not shown to be in
// range. An index is in range if it is below the number of rows by itself, or if the source looks
// up the same index in a table with no more rows. Indices that data gives are assumed to count from
// the front (sym/forms/forms.h).
UnmetConditions LookupsOutside(const GraphPair& pair, const Correspondence& twins,
                               Equality& equality);

}  // namespace kvlift
