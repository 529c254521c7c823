// Says whether a conversion excludes padding tokens, because they would change the results for real
// tokens. The manifest then has a precondition about it, and the ledger an entry of kind kPadding
// without a subject.
#pragma once

#include "contract/assumptions.h"
#include "contract/manifest.h"

namespace kvlift {

// Returns true if a precondition (KV236, KV248) says that no step has padding tokens.
bool ExcludesPadding(const Manifest& manifest);
// Returns the entry that says that no step has padding tokens; nullptr if the ledger allows them.
const Assumption* PaddingExcluded(const Assumptions& ledger);

}  // namespace kvlift
