// Caches that grow by Concat behind several heads: which of them may keep room behind each head.
#pragma once

#include <string>

#include "absl/types/span.h"
#include "exec/kernel.h"
#include "exec/plan.h"
#include "ir/graph.h"

namespace kvlift::exec {

// Fills PairPlan::apart and members, and Plan::apart. The reasons of pairs that append say what
// stands in the way, if something does.
void FindApart(const Graph& graph, absl::Span<const OpDef* const> defs, Plan* plan);

// Elements between the heads of a view of this shape, with room for further rows: at least `rows`.
int64_t RoomyPitch(const Shape& shape, int64_t rows);
// The same for a value that is to grow: a quarter more rows than it has, rounded up.
int64_t GrowingPitch(const Shape& shape);
// Bytes that a view takes from its first element to its last, and room behind the last block.
size_t SpannedBytes(int32_t type, const Shape& shape, int64_t pitch);
// Copies between views of one type and shape, which may have different pitches.
void CopyView(const View& from, const View& to);
// Fills what lies behind the rows of each block, `capacity` bytes in all, with NaN.
void PoisonRoom(const View& view, size_t capacity);

}  // namespace kvlift::exec
