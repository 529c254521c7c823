// Whether a conversion excludes padding tokens, which would change the results of real tokens. The
// manifest says so by a precondition, and the ledger by an entry that is not about one value.
#pragma once

#include "contract/assumptions.h"
#include "contract/manifest.h"

namespace kvlift {

// Returns true if a precondition (KV236, KV248) says that no step has padding tokens.
bool ExcludesPadding(const Manifest& manifest);
// Returns the entry that says that no step has padding tokens; nullptr if the ledger allows them.
const Assumption* PaddingExcluded(const Assumptions& ledger);

}  // namespace kvlift
