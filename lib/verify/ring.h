// Caches that are written around the end of their buffer: token t of a sequence is in slot t mod M.
//
// A source whose rows move to the front (kind "shift") is shown as if it were such a buffer: after
// T tokens its row r holds token T - M + r, which is slot (r + T) mod M.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "contract/manifest.h"
#include "exec/session.h"
#include "verify/step.h"

namespace kvlift {

bool Shifts(const SourceCache& cache);

// Tokens [begin, end), cut where the buffer ends.
std::vector<std::pair<int64_t, int64_t>> Laps(int64_t begin, int64_t end, int64_t capacity);

// Between the feeds and fetches of a source's step and the buffers that they stand for.
void IntoSourceOrder(const Manifest& relation, const StepSpec& step, exec::Feeds* feeds);
void IntoSlotOrder(const Manifest& relation, const StepSpec& step, exec::Fetches* fetches);

// Rows whose tokens follow one another from `first` on, as a full ring has them.
void IntoRing(int64_t first, const SourceCache& cache, exec::Tensor* rows);

}  // namespace kvlift
