// The groups of mutants. Each adds those that apply to the model.
#pragma once

#include "verify/mutant_maker.h"
#include "verify/mutant_sites.h"

namespace kvlift {

// Where, how and what TensorScatter writes.
void AddWriteMutants(MutantMaker& maker, const MutantSites& sites);
// Caches that are written by other means: at the ends that the relation names.
void AddCacheMutants(MutantMaker& maker, const MutantSites& sites);
// Caches whose sequences change places.
void AddOrderMutants(MutantMaker& maker, const MutantSites& sites);
// What an attention reads, how its scores are computed, and which heads belong together.
void AddAttentionMutants(MutantMaker& maker, const MutantSites& sites);
// Attentions that are written out, and keys that are rotated only behind the cache.
void AddUnfusedMutants(MutantMaker& maker, const MutantSites& sites);
// How many keys are valid, and what the mask says.
void AddLengthMutants(MutantMaker& maker, const MutantSites& sites);
// Whatever else is computed from lengths: positions.
void AddPositionMutants(MutantMaker& maker, const MutantSites& sites);
// How rows are kept in few bits.
void AddQuantizedMutants(MutantMaker& maker, const MutantSites& sites);
// What the format, the operators and the relation forbid; reads of a past that is written in place.
void AddGraphMutants(MutantMaker& maker, const MutantSites& sites);

}  // namespace kvlift
