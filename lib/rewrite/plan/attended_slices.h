// Values of the graph that are equal to what attention reads of a cache, or to a slice of it.
#pragma once

#include <vector>

#include "rewrite/types/rule.h"
#include "sym/forms/forms.h"

namespace kvlift {

// A value that equals CacheUpdate::read_by_attention() with `fixed_axes` fixed, or all of it if
// `fixed_axes` is empty. Its type may be narrower than that of the cache if the narrower type holds
// all numbers of the cache.
struct AttendedSlice {
  ValueId value = kNoValue;
  std::vector<FixedAxis> fixed_axes;
};

// Finds such values of a growing cache that keeps a window or holds numbers of a narrower type
// than it declares, or of a tensor that holds several caches; there are none for other caches.
// Leaves out the present itself, and values that the cache's own new rows are computed from.
std::vector<AttendedSlice> FindAttendedSlices(sym::Forms& forms, const CacheUpdate& update);

// Returns true if new rows of the cache are computed from the node's outputs. In a tensor that
// holds the caches of several layers, the rows of a later layer are computed from the attention of
// an earlier one.
bool UpdateDependsOn(const Graph& graph, const CacheUpdate& update, NodeId node);

}  // namespace kvlift
