// Buffers of M slots whose rows move to the front with each step, a FIFO (kind "shift"). The
// converted model leaves rows in place: row t of the source is in slot (t + P + S) mod M, if S <=
// M.
#pragma once

#include <optional>
#include <vector>

#include "contract/manifest.h"
#include "proof/graphs/pair.h"
#include "proof/rows/moved_rows.h"

namespace kvlift {

// How the rows of a source cache move.
struct ShiftOfRows {
  sym::Expr slots = nullptr;   // M, a number
  sym::Expr tokens = nullptr;  // S: a dimension or a number
};

// Reads how the rows of a cache of the source move. Returns nullopt if its present is not its past
// moved to the front by S rows.
std::optional<ShiftOfRows> ReadShiftOfRows(const GraphPair& pair, const ManifestCache& cache);

// Returns the two regions of the source's rows after a step, which are all M rows: those that stay,
// [0, M - S), and the new ones. `past` is P.
std::vector<MovedRows> RegionsOf(sym::Pool& pool, const ShiftOfRows& shift, sym::Expr past);

}  // namespace kvlift
