// Wrong relations between two models.
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

std::vector<RelationMutant> MakeRelationMutants(const Graph& after, const Manifest& relation);

}  // namespace kvlift
