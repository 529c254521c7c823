// Pieces laid side by side along an axis, told as one where they continue each other.
#pragma once

#include "absl/types/span.h"
#include "sym/forms_engine.h"

namespace kvlift::sym::internal {

// The element at `index` of the axis: pieces[k] where ends[k-1] <= index < ends[k]. Stacked: each
// piece is one long and does not hold the index. Rows of one tensor, one after the other, become
// one load, and a condition that all pieces share is asked first:
// i3 < P ? past[i0, ..] : (i0 <= 0 ? k[..] : v[..]) for keys and values stacked behind a past.
Expr Piecewise(Engine& engine, Expr index, absl::Span<const Expr> ends,
               absl::Span<const Expr> pieces, bool stacked, const Facts& facts);

}  // namespace kvlift::sym::internal
