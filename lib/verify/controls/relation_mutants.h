// Wrong relations between two models, as negative controls: each must make the verdict fail.
#pragma once

#include <string>
#include <vector>

#include "contract/manifest.h"
#include "ir/graph.h"

namespace kvlift {

struct RelationMutant {
  std::string name;
  Manifest relation;
};

// Returns the wrong relations that can be made of a relation, such as two caches swapped or an
// output left out. after: the converted model.
std::vector<RelationMutant> MakeRelationMutants(const Graph& after, const Manifest& relation);

}  // namespace kvlift
