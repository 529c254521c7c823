// Rings of C slots for a window of W rows (CacheRing): before a step of S <= C - W tokens the last
// W of P rows are there, token t in slot t mod C.
#pragma once

#include <optional>
#include <vector>

#include "contract/manifest.h"
#include "proof/moved_rows.h"
#include "proof/pair.h"

namespace kvlift {

struct RingOfRows {
  int64_t window = 0;         // W
  sym::Expr slots = nullptr;  // C: a dim, or a number
  bool keeps_window = false;  // the source's first row is the first that is held; else token 0
};

// The ring that a cache of the conversion is; nothing if it is none, or not one of what the source
// keeps.
std::optional<RingOfRows> ReadRing(const GraphPair& pair, const ManifestCache& cache);

// Takes S <= C - W and W < C for granted from now on. False if numbers say that it is not so.
bool HoldsStep(sym::Pool& pool, const RingOfRows& ring, sym::Expr tokens);

// There is one slot beside the window.
bool HoldsOneToken(sym::Pool& pool, const RingOfRows& ring);

// The rows that are held, left: the number of the first one, and new ones, as the source counts its
// keys.
std::vector<MovedRows> RegionsOf(sym::Pool& pool, const RingOfRows& ring, sym::Expr past,
                                 sym::Expr left, sym::Expr tokens);

}  // namespace kvlift
