// Functions that go back from a value to the one that it is a view of. Internal to lib/ports.
#pragma once

#include "absl/container/flat_hash_set.h"
#include "ir/graph.h"

namespace kvlift::ports {

// The next two functions return v itself if another kind of node computes it.

// Looks through nodes that rename, reshape or transpose: all elements stay.
ValueId BehindViews(const Graph& graph, ValueId v);
// Looks through nodes that change the type or the shape of a vector of integers.
ValueId BehindVectorViews(const Graph& graph, ValueId v);

// The value whose elements an operand of Attention holds, found behind views, Slice, Expand, Cast,
// DequantizeLinear, and products with a constant, which are scales.
struct Read {
  ValueId root = kNoValue;
  // The Gather or Split on the way that is nearest to the root, and takes a part of it; kNoNode:
  // there is none.
  NodeId part = kNoNode;
};
Read BehindReads(const Graph& graph, ValueId v);

// Returns the values whose elements v depends on, v included. A value of which only the shape is
// read does not count.
absl::flat_hash_set<ValueId> SourcesOf(const Graph& graph, ValueId v);

}  // namespace kvlift::ports
