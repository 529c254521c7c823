#include "verify/mutants/mutants.h"

#include "verify/mutants/mutant_guards.h"
#include "verify/mutants/mutant_kinds.h"

namespace kvlift {

std::vector<Mutant> MakeMutants(const Graph& graph, const Manifest& relation,
                                const MutantLimits& limits) {
  const MutantSites sites(graph, relation, limits);
  MutantMaker maker(graph);
  if (sites.scatters().empty()) {
    AddCacheMutants(maker, sites);
  } else {
    AddWriteMutants(maker, sites);
  }
  AddOrderMutants(maker, sites);
  AddLengthMutants(maker, sites);
  AddAttentionMutants(maker, sites);
  AddPositionMutants(maker, sites);
  AddUnfusedMutants(maker, sites);
  AddQuantizedMutants(maker, sites);
  AddGraphMutants(maker, sites);
  return std::move(maker.mutants());
}

}  // namespace kvlift
