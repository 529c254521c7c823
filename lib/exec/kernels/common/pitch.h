// Views whose blocks, formed by the last two dimensions, have room behind them: the distance
// between the beginnings of two blocks is View::pitch elements.
#pragma once

#include <cstddef>
#include <cstdint>

#include "exec/memory/tensor.h"

namespace kvlift::exec {

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
