// Caches of M rows that move to the front with each step (kind "shift"): row t of the source is in
// slot (t + P + S) mod M of the conversion, as long as a step has M tokens at most.
#pragma once

#include <optional>
#include <vector>

#include "contract/manifest.h"
#include "proof/moved_rows.h"
#include "proof/pair.h"

namespace kvlift {

struct ShiftOfRows {
  sym::Expr slots = nullptr;   // M, a number
  sym::Expr tokens = nullptr;  // S: a dim, or a number
};

// How the rows of a cache of the source move; nothing if its form does not say so.
std::optional<ShiftOfRows> ReadShiftOfRows(const GraphPair& pair, const ManifestCache& cache);

// Rows [0, M - S), and from there on: all there are.
std::vector<MovedRows> RegionsOf(sym::Pool& pool, const ShiftOfRows& shift, sym::Expr past);

}  // namespace kvlift
