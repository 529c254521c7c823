// The ways back from a value to the one that it is a view of. Internal to lib/ports.
#pragma once

#include "absl/container/flat_hash_set.h"
#include "ir/graph.h"

namespace kvlift::ports {

// Each returns v itself where another node makes it.

// Looks through nodes that rename, reshape or transpose: all elements stay.
ValueId BehindViews(const Graph& graph, ValueId v);
// Looks through nodes that change the type or the shape of a vector of integers.
ValueId BehindVectorViews(const Graph& graph, ValueId v);

// What an Attention reads of a value, behind views, Slice, Expand, Cast, DequantizeLinear and
// products with a constant, which are scales.
struct Read {
  ValueId root = kNoValue;
  // The last Gather or Split on the way, which take a part of the root. It is kNoNode if the way
  // has no such node.
  NodeId part = kNoNode;
};
Read BehindReads(const Graph& graph, ValueId v);

// Returns the values whose elements v depends on, v included. Shapes are no elements.
absl::flat_hash_set<ValueId> SourcesOf(const Graph& graph, ValueId v);

}  // namespace kvlift::ports
