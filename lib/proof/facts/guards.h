// Conditions that hold in every step that a converted model runs, because it refuses all other
// steps.
#pragma once

#include "proof/correspondence/correspondence.h"
#include "proof/graphs/pair.h"

namespace kvlift {

// Returns the conjunction of the conditions c of all TensorScatters whose write index is "c ? x :
// y" with y outside the buffer: such a write fails unless c holds. A condition has to be the same
// for all sequences. Returns true if there is none.
sym::Expr GuardsOf(const GraphPair& pair, const Correspondence& twins);

}  // namespace kvlift
