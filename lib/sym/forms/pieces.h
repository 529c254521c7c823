// Merges pieces that lie side by side on an axis, as behind a Concat, into one expression where
// they continue each other.
#pragma once

#include "absl/types/span.h"
#include "sym/forms/forms_engine.h"

namespace kvlift::sym::internal {

// Returns the element at `index` of the axis: pieces[k] where ends[k-1] <= index < ends[k].
// `stacked` says that each piece has extent 1 and does not contain the index. Consecutive rows of
// one tensor then become one load, and a condition that all pieces share is asked first. For keys
// and values that are stacked after a past: i3 < P ? past[i0, ..] : (i0 <= 0 ? k[..] : v[..])
Expr Piecewise(Engine& engine, Expr index, absl::Span<const Expr> ends,
               absl::Span<const Expr> pieces, bool stacked, const Facts& facts);

}  // namespace kvlift::sym::internal
