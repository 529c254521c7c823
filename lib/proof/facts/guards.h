// Reads conditions that hold in every step that a converted model runs, because an operator refuses
// all other steps.
#pragma once

#include "proof/correspondence/correspondence.h"
#include "proof/graphs/pair.h"

namespace kvlift {

// Returns the conjunction of the conditions c of all TensorScatters whose write index is "c ? x :
// y" with y outside the buffer: such a write fails unless c holds. Conditions that differ between
// sequences are left out, and so are writes that no output needs, which a runtime need not run.
// Returns the constant true if no condition is found.
sym::Expr GuardsOf(const GraphPair& pair, const Correspondence& twins);

}  // namespace kvlift
