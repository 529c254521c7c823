// Functions that the rules share: they read operands of attention as caches, and find values of the
// graph by their element.
#pragma once

#include <optional>
#include <vector>

#include "absl/types/span.h"
#include "rewrite/types/rule.h"
#include "sym/forms/forms.h"

namespace kvlift {

// Returns i0..i(n-1).
std::vector<sym::Expr> Indices(sym::Pool& pool, int n);

// Returns the indices of a tensor of this shape, with 0 for axes of extent 1: forms read broadcast
// axes at 0, so expressions that are compared with them must do the same.
std::vector<sym::Expr> Indices(sym::Pool& pool, absl::Span<const sym::Expr> shape);

// Searches `from` and up to a few dozen values that it is computed from, nearest first, for a value
// of the given shape whose element is exactly `element`; on axes of extent 1 the index and 0 are
// the same. Returns kNoValue if there is no such value.
// joined_axis: the value is joined with another tensor along this axis; extents of the other axes
// may then be written differently, unless both are numbers.
// elem_type (onnx TensorProto::DataType): values that are known to have another type do not count.
// Forms look through casts that keep every number, so the element alone does not tell the type.
ValueId FindValue(sym::Forms& forms, ValueId from, sym::Expr element,
                  absl::Span<const sym::Expr> shape, std::optional<int> joined_axis = std::nullopt,
                  std::optional<int32_t> elem_type = std::nullopt);

struct Dequantized {
  sym::Expr element = nullptr;  // of the quantised operand
  NodeId node = kNoNode;        // the DequantizeLinear; kNoNode: `element` is what was given
};
// Looks through a DequantizeLinear whose scale and zero point are constants of one element. Returns
// any other element as it is.
Dequantized ThroughDequantize(sym::Forms& forms, sym::Expr element, const sym::Facts& facts);

// Finds the cache that an operand of attention reads. element: the operand at [b, h, t, d], with
// b = i0, h = i1, t = i3, d = i4 under `facts`, and 0 for axes of extent 1. heads: the extent of
// i1, a multiple of Nk. The operand must be exactly what attention reads of the cache (or the rows
// that are decoded from it) at [b, h div (heads / Nk), t, d]. elem_type: the type of the operand
// (onnx TensorProto::DataType).
CacheOperand FindCache(sym::Forms& forms, absl::Span<const CacheUpdate> caches, sym::Expr element,
                       int32_t elem_type, int64_t heads, const sym::Facts& facts);

// Returns the element type (onnx TensorProto::DataType) of the rows that attention reads through a
// view: that of the cache, or of what its rows are cast or decoded to. 0 if it is not known.
int32_t TypeOfRows(sym::Forms& forms, const CacheUpdate& cache, const CacheView& view);

// Returns true if the expression reads a past or a present of one of the caches.
bool ReadsCache(absl::Span<const CacheUpdate> caches, sym::Expr element);
// Returns true if ReadsCache does, or if the expression reads rows that are decoded from a cache.
bool ReadsStored(sym::Forms& forms, absl::Span<const CacheUpdate> caches, sym::Expr element,
                 const sym::Facts& facts);

}  // namespace kvlift
