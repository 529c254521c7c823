// Ring buffers: token t of a sequence is in slot t mod M, and writes wrap around.
//
// A source that shifts its rows to the front instead (kind "shift", a fixed number of M rows, the
// newest last) is treated as a ring buffer: after T tokens its row r holds token T - M + r, which a
// ring buffer has in slot (r + T) mod M.
//
// A source that holds the newest rows in a sliding buffer (SlidingBuffer of contract/manifest.h) is
// treated as a cache that grows and keeps these rows.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "contract/manifest.h"
#include "exec/session/session.h"
#include "verify/inputs/step.h"

namespace kvlift {

// Returns true if the source's cache is such a shifted buffer.
bool Shifts(const SourceCache& cache);

// Splits the tokens [begin, end) where the buffer wraps around, so that each part is in consecutive
// slots.
std::vector<std::pair<int64_t, int64_t>> SplitAtWrap(int64_t begin, int64_t end, int64_t capacity);

// Moves the rows of all shifted caches and sliding buffers of a source's step: in feeds from the
// order of slots to that of the source, in fetches (where present) back. The steps of a source with
// sliding buffers have one past length.
void IntoSourceOrder(const Manifest& relation, const StepSpec& step, exec::Feeds* feeds);
void IntoSlotOrder(const Manifest& relation, const StepSpec& step, exec::Fetches* fetches);

// Rotates rows that hold the tokens first, first + 1, ... into the order of a full ring buffer of
// as many slots.
void IntoRing(int64_t first, const SourceCache& cache, exec::Tensor* rows);

}  // namespace kvlift
