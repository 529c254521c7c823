// Caches [B, Nk, T, D] that grow by Concat on the axis of the tokens. With B * Nk > 1 the new rows
// of a head stand behind the old ones of that head, so appending in place needs spare room behind
// each head (a pitch, see View::pitch). This decides which caches can have it, and handles such
// views.
#pragma once

#include <string>

#include "absl/types/span.h"
#include "exec/kernel.h"
#include "exec/plan.h"
#include "ir/graph.h"

namespace kvlift::exec {

// Fills PairPlan::apart and members and Plan::apart for the pairs that have a grower. Where a
// reader cannot take heads with a pitch, the pair's decision.reason names it and apart stays false.
void FindApart(const Graph& graph, absl::Span<const OpDef* const> defs, Plan* plan);

// Returns the pitch, in elements, that holds `rows` rows per head, and at least those of `shape`
// (rank >= 2).
int64_t RoomyPitch(const Shape& shape, int64_t rows);
// Returns the pitch for a value that will grow: about a quarter more rows than it has, in multiples
// of 16 rows.
int64_t GrowingPitch(const Shape& shape);
// Returns the bytes from the first element of a view to the end of the room behind its last block.
// pitch 0: the bytes of the dense tensor.
size_t SpannedBytes(int32_t type, const Shape& shape, int64_t pitch);
// Copies the elements of `from` to `to`: same type and shape, pitches may differ.
void CopyView(const View& from, const View& to);
// Fills the room behind the rows of each block with NaN (all bits set). `capacity` is the size in
// bytes of the whole buffer.
void PoisonRoom(const View& view, size_t capacity);

}  // namespace kvlift::exec
