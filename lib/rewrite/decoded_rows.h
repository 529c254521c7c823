// Rows that a cache keeps in another form than attention reads them: numbers of few bits with
// constant scales, two of four bits in a byte.
#pragma once

#include <vector>

#include "absl/types/span.h"
#include "rewrite/rule.h"
#include "sym/forms.h"

namespace kvlift {

// The nodes between a cache's attended value and a value, in the order in which they run. What they
// make of a row depends on that row alone and on constants that are the same for all rows; the axes
// in front of the row's elements, which are the last axis, stay as they are.
struct DecodedRows {
  int cache = -1;  // index into the caches; -1: the value is nothing of that kind
  std::vector<NodeId> nodes;
  std::vector<ValueId> roots;  // their operands that are the attended value
};
DecodedRows ReadDecodedRows(sym::Forms& forms, absl::Span<const CacheUpdate> caches, ValueId value);

// The constant that a value is, also behind Identities; nullptr if it is none.
const onnx::TensorProto* ConstantBehind(const Graph& graph, ValueId value);

// The constant that an Expand makes a value of, also behind Identities: scales of blocks, which
// have as many rows as the cache. kNoValue if it is made otherwise.
ValueId SpreadConstant(const Graph& graph, ValueId value);

// Each element is made of one element, by constants of one element: the nodes do the same to a
// cache whose axes are in another order.
bool IsElementwise(const Graph& graph, absl::Span<const NodeId> nodes);

}  // namespace kvlift
