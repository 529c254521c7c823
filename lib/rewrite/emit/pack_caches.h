// Keeps caches that are parts of one tensor in the source in one tensor (--cache-tensors packed).
//
// The parts lie one behind the other on the sequence axis: [B, L, 2, M, Nk, D] is a buffer of
// 2 * L * M rows, in which row m of layer l's keys is row 2 * l * M + m, and row m of its values is
// row (2 * l + 1) * M + m. Each layer's TensorScatter writes at its offset into the result of the
// one before, so that one buffer suffices, and attention reads a Slice of it. Parts with heads in
// front of the rows give [B, Nk, L, 2, M, D].
#pragma once

#include "absl/status/status.h"
#include "rewrite/emit/emission.h"

namespace kvlift {

// Packs the caches of a model that are parts of one tensor in the source. A write index that is out
// of a part's range becomes one that is out of the buffer's, so that the runtime refuses it.
absl::Status PackCaches(Emission* emission);

}  // namespace kvlift
