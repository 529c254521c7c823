// Whether a RotaryEmbedding of the conversion computes what the source spells out.
#pragma once

#include "proof/correspondence.h"
#include "proof/pair.h"

namespace kvlift {

// Each element of the operator's result, as its text has it (halves, not interleaved; a table for
// each sequence and token), is the same sum of products as the source's element at that place.
bool IsRotationOf(const GraphPair& pair, const Correspondence& twins, NodeId mine, ValueId theirs);

}  // namespace kvlift
