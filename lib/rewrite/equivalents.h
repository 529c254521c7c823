// Values that are what attention reads of a cache, or a part of it.
#pragma once

#include <vector>

#include "rewrite/rule.h"
#include "sym/forms.h"

namespace kvlift {

// value = the attended tensor with the lanes' axes fixed.
struct Equivalent {
  ValueId value = kNoValue;
  std::vector<Lane> lanes;
};

// Of a growing cache; the present itself is not among them, nor what the cache's own new rows are
// computed from.
std::vector<Equivalent> FindEquivalents(sym::Forms& forms, const CacheUpdate& update);

// Are the new rows of the cache computed from the node's outputs?
bool UpdateDependsOn(const Graph& graph, const CacheUpdate& update, NodeId node);

}  // namespace kvlift
