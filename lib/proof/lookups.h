// Indices into tables: no operator of the conversion may refuse a step that the source takes
// because an index lies outside.
#pragma once

#include "proof/correspondence.h"
#include "proof/equality.h"
#include "proof/misfits.h"
#include "proof/pair.h"

namespace kvlift {

// The conversion's Gathers and scatters, in all their forms, whose indices are not seen to lie
// below the number of rows, neither by themselves nor because the source looks up the same indices
// in a table that is no longer. That indices count from the front is an assumption of the forms
// (sym/forms.h).
Misfits LookupsOutside(const GraphPair& pair, const Correspondence& twins, Equality& equality);

}  // namespace kvlift
