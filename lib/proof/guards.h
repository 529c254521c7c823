// What holds in every step that a conversion takes because other steps are refused.
#pragma once

#include "proof/correspondence.h"
#include "proof/pair.h"

namespace kvlift {

// The conditions c of TensorScatters at an index "c ? x : y" with y out of the buffer, as such a
// write fails, where c is one for all sequences; true without any.
sym::Expr GuardsOf(const GraphPair& pair, const Correspondence& twins);

}  // namespace kvlift
