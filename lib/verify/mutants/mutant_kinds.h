// The kinds of mutants. Each function adds the mutants of its kind that apply to the model.
#pragma once

#include "verify/mutants/mutant_maker.h"
#include "verify/mutants/mutant_sites.h"

namespace kvlift {

// TensorScatter nodes: write index, axis, mode, update, and which cache receives which update.
void AddWriteMutants(MutantMaker& maker, const MutantSites& sites);
// Models without TensorScatter: the past and present of a cache as the relation names them.
void AddCacheMutants(MutantMaker& maker, const MutantSites& sites);
// The order of sequences (beam search): a Gather along the batch axis of a past is removed.
void AddOrderMutants(MutantMaker& maker, const MutantSites& sites);
// Attention nodes: keys and values, scale, softcap, precision, and the grouping of heads.
void AddAttentionMutants(MutantMaker& maker, const MutantSites& sites);
// Attentions that are not fused into an operator, and RoPE that is applied before the cache write.
void AddUnfusedMutants(MutantMaker& maker, const MutantSites& sites);
// The number of valid keys, the causal flag, and the mask.
void AddLengthMutants(MutantMaker& maker, const MutantSites& sites);
// Positions that are computed from lengths or fed by the host.
void AddPositionMutants(MutantMaker& maker, const MutantSites& sites);
// Quantised caches: the rounding of rows, and the scales that they are written and read with.
void AddQuantizedMutants(MutantMaker& maker, const MutantSites& sites);
// Models that break a rule of the format, of an operator or of the relation, and nodes that read a
// past after it was updated in place.
void AddGraphMutants(MutantMaker& maker, const MutantSites& sites);

}  // namespace kvlift
