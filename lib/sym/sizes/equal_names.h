// Names of sizes that operators make equal.
//
// Some exporters give each axis of each input a name of its own, although a ScatterND or a Concat
// behind them runs with equal extents only. Knowing that restricts nothing that the model can do.
#pragma once

#include "ir/rename_sizes.h"
#include "sym/forms/forms.h"

namespace kvlift::sym {

// Returns new names for those sizes of graph inputs that an operator makes equal to another in
// every run, as far as `forms` has computed the forms behind it: the name that an earlier input
// declares. Empty if there are none.
SizeNames EqualNamesOf(const Forms& forms);

}  // namespace kvlift::sym
