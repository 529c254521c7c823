// Keeps caches that are parts of one tensor in the source in one tensor (--cache-tensors packed).
//
// The parts lie one behind the other on the sequence axis: [B, L, 2, M, Nk, D] is a buffer of
// 2 * L * M rows, in which row m of layer l's keys is row 2 * l * M + m, and row m of its values is
// row (2 * l + 1) * M + m. Each layer's TensorScatter writes at its offset into the result of the
// one before, so that one buffer suffices, and attention reads a Slice of it. Parts with heads in
// front of the rows give [B, Nk, L, 2, M, D].
#pragma once

#include <optional>

#include "absl/status/statusor.h"
#include "base/findings.h"
#include "rewrite/emit/emission.h"
#include "rewrite/types/resolved_options.h"

namespace kvlift {

// Packs the caches of a converted model that are parts of one tensor in the source. A write index
// that is out of a part's range becomes one that is out of the buffer's, so that the runtime
// refuses it. Returns KV246, and changes nothing, if the source has no such tensor, if some part
// cannot be written at an offset, or if the target or --quantize-cache does not allow it.
absl::StatusOr<std::optional<Finding>> PackCaches(const ResolvedOptions& options,
                                                  Emission* emission);

}  // namespace kvlift
