// Names the axes of a cache by letters.
#pragma once

#include <string>

#include "rewrite/types/rule.h"
#include "sym/forms/forms.h"

namespace kvlift {

// Returns one letter per axis of a cache whose sequence axis is `axis`: S the sequence, B the batch
// (or batch and heads in one), N heads, D the head size, K keys and values, L layers, J any other
// axis. Caches of rank 3 have no N. "BNSD" for [B, Nk, P, D], "KBNSD" for [2, B, Nk, P, D]. Empty
// for ranks below 3 and above 6.
std::string LayoutOf(sym::Forms& forms, const CachePair& pair, int axis);

// Returns the layout of a cache whose new rows have the element `rows`. An axis in front of B whose
// indices get rows that are computed separately counts layers, or keys and values; the heads are
// then in the last axis: "LBSD" for [L, B, M, N * D].
std::string LayoutOfRows(sym::Forms& forms, const CachePair& pair, int axis, sym::Expr rows);

// Returns true if the number of rows that a step writes depends on the number of sequences, as if a
// Transpose confused the two axes. Such a graph runs only where both are equal.
bool CountsSequences(sym::Forms& forms, const CacheUpdate& update);

// Returns the first axis that counts caches in one tensor (K, L or J); npos if there is none.
size_t FirstPackedAxis(const std::string& layout);
inline bool HasPackedAxes(const std::string& layout) {
  return FirstPackedAxis(layout) != std::string::npos;
}

}  // namespace kvlift
