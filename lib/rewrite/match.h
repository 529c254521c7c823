// What recognisers share: reading cache operands, finding existing values by their form.
#pragma once

#include <optional>
#include <vector>

#include "absl/types/span.h"
#include "rewrite/rule.h"
#include "sym/forms.h"

namespace kvlift {

// i0..i(n-1).
std::vector<sym::Expr> Indices(sym::Pool& pool, int n);

// The same for the axes of a shape, with 0 for axes of extent 1: what broadcasting reads there is
// written 0, so indices that are compared are given as 0 as well.
std::vector<sym::Expr> Indices(sym::Pool& pool, absl::Span<const sym::Expr> shape);

// Searches the values that `from` is computed from (data movement and scalar arithmetic only goes
// so far: at most a few dozen) for one of the given shape whose element is exactly `element`; on
// axes of extent 1 the index and 0 are the same. kNoValue if there is none. joined_axis: the value
// is joined with another tensor along this axis, which makes the other extents equal where they are
// written differently. elem_type: the value has this element type; a cast that keeps every number
// makes no other element.
ValueId FindValue(sym::Forms& forms, ValueId from, sym::Expr element,
                  absl::Span<const sym::Expr> shape, std::optional<int> joined_axis = std::nullopt,
                  std::optional<int32_t> elem_type = std::nullopt);

// What a DequantizeLinear with one constant scale makes its numbers of, element by element; the
// element itself, and no node, where it is none's.
struct Dequantized {
  sym::Expr element = nullptr;
  NodeId node = kNoNode;
};
Dequantized ThroughDequantize(sym::Forms& forms, sym::Expr element, const sym::Facts& facts);

// Which cache an operand is: index into `caches`, and how it lies there. -1: none.
struct CacheOperand {
  int cache = -1;
  CacheView view;
};

// The cache whose attended value, or what is made of its rows, read as [b, h div group, t, d], has
// exactly this element. b = i0, h = i1, t = i3, d = i4 under `facts`, 0 where the extent is 1;
// heads is the extent of i1.
CacheOperand FindCache(sym::Forms& forms, absl::Span<const CacheUpdate> caches, sym::Expr element,
                       int64_t heads, const sym::Facts& facts);

// The element type of the rows that attention reads through a view: the cache's, or what they are
// decoded to.
int32_t TypeOfRows(sym::Forms& forms, const CacheUpdate& cache, const CacheView& view);

// Does the expression read a past or a present of one of the caches?
bool ReadsCache(absl::Span<const CacheUpdate> caches, sym::Expr element);
// The same, also where a row is made of what is stored.
bool ReadsStored(sym::Forms& forms, absl::Span<const CacheUpdate> caches, sym::Expr element,
                 const sym::Facts& facts);

}  // namespace kvlift
