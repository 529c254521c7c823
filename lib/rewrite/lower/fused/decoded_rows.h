// Caches of the source that hold their rows quantised: integers with constant scales, or two 4-bit
// codes in a byte, from which the graph makes the rows that attention reads.
#pragma once

#include <vector>

#include "absl/types/span.h"
#include "rewrite/types/rule.h"
#include "sym/forms/forms.h"

namespace kvlift {

// The nodes between what attention reads of a cache (CacheUpdate::read_by_attention) and a value,
// in the order in which they run. They make each row from that row alone and from constants that
// are the same for all rows. All axes in front of the last one, D, keep their place and extent.
struct DecodedRows {
  int cache = -1;  // index into the caches; -1: the value is not made in this way
  std::vector<NodeId> nodes;
  std::vector<ValueId> roots;  // operands of `nodes` that are what attention reads of the cache
};
// Looks at caches whose last axis is D and whose element type is not a floating-point type of 16
// bits or more.
DecodedRows ReadDecodedRows(sym::Forms& forms, absl::Span<const CacheUpdate> caches, ValueId value);

// Returns the constant that an Expand repeats to give a value, also behind Identity nodes, such as
// the scales of blocks, repeated for each row. Returns kNoValue otherwise.
ValueId SpreadConstant(const Graph& graph, ValueId value);

// Returns true if the nodes make each element from one element and from constants of one element,
// so that they may run on a cache whose axes are in another order.
bool IsElementwise(const Graph& graph, absl::Span<const NodeId> nodes);

}  // namespace kvlift
