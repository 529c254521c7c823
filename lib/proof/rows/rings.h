// Ring buffers of C slots for a sliding window of W rows (CacheRing). Before a step of S <= C - W
// tokens the buffer holds the last W of P tokens, token t in slot t mod C.
#pragma once

#include <optional>
#include <vector>

#include "contract/manifest.h"
#include "proof/graphs/pair.h"
#include "proof/rows/moved_rows.h"

namespace kvlift {

// A ring of the converted model.
struct RingOfRows {
  int64_t window = 0;         // W in rows, at least 1
  sym::Expr slots = nullptr;  // C, a dimension or a number
  // True: the source's cache keeps the window only, and its row 0 is the oldest row of the window.
  // False: the source keeps all rows, and its row t is token t.
  bool keeps_window = false;
};

// Reads the ring that a cache of the converted model is. Returns nullopt if the cache has no ring,
// if the source's cache does not grow, or if the source keeps another window.
std::optional<RingOfRows> RingOfCache(const GraphPair& pair, const ManifestCache& cache);

// Declares that 1 <= S <= C - W and W < C, with S = `tokens`. Returns false, and declares nothing
// of S, if S is neither a dimension nor a number or if the numbers exclude it.
bool HoldsStep(sym::Pool& pool, const RingOfRows& ring, sym::Expr tokens);

// Returns true if the ring has one slot besides the window, so that a step has one token.
bool HoldsOneToken(sym::Pool& pool, const RingOfRows& ring);

// Returns the regions of rows after a step, in the source's row numbers: rows that stay in the
// window, and new rows. `past` is P, `left` the number of tokens that have left the window,
// `tokens` S.
std::vector<MovedRows> RegionsOf(sym::Pool& pool, const RingOfRows& ring, sym::Expr past,
                                 sym::Expr left, sym::Expr tokens);

}  // namespace kvlift
