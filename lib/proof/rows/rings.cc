#include "proof/rows/rings.h"

#include "proof/rows/windows.h"

namespace kvlift {

using sym::Expr;
using sym::Kind;
using sym::Pool;

std::optional<RingOfRows> RingOfCache(const GraphPair& pair, const ManifestCache& cache) {
  const ValueId past = pair.After(cache.input);
  if (!cache.ring || cache.ring->window < 1 || past == kNoValue) return std::nullopt;
  const sym::Form form = pair.forms().Of(past);
  const auto axis = static_cast<size_t>(cache.axis);
  if (!form.known_rank || axis >= form.shape.size()) return std::nullopt;
  RingOfRows ring{cache.ring->window, form.shape[axis], cache.source.kind == UpdateKind::kWindow};
  if (ring.slots->kind() != Kind::kDim && ring.slots->kind() != Kind::kInteger) return std::nullopt;
  if (!cache.source.growing) return std::nullopt;
  if (ring.keeps_window) {
    const auto window = ReadWindow(pair, cache, pair.forms());
    if (!window || window->rows != ring.window) return std::nullopt;
  }
  return ring;
}

bool HoldsStep(Pool& pool, const RingOfRows& ring, Expr tokens) {
  const bool named = tokens->kind() == Kind::kDim;
  if (!named && tokens->kind() != Kind::kInteger) return false;
  const int64_t least = named ? 1 : tokens->value();
  if (least < 1) return false;
  if (ring.slots->kind() == Kind::kDim) {
    pool.Dim(ring.slots->dim(), ring.window + least);
  } else if (ring.slots->value() < ring.window + least) {
    return false;
  }
  if (named) {
    pool.Dim(tokens->dim(), 1);
    pool.Bound(tokens->dim(), pool.Sub(ring.slots, pool.Integer(ring.window)));
  }
  return true;
}

bool HoldsOneToken(Pool& pool, const RingOfRows& ring) {
  return pool.Sub(ring.slots, pool.Integer(ring.window))->is_integer(1);
}

std::vector<MovedRows> RegionsOf(Pool& pool, const RingOfRows& ring, Expr past, Expr left,
                                 Expr tokens) {
  const Expr none = pool.Integer(0), held = pool.Sub(past, left);
  const Turn turn{ring.slots, ring.keeps_window ? left : none};
  const Expr first = ring.keeps_window ? none : left;
  return {MovedRows(pool, "rows that stay", turn, first, held),
          MovedRows(pool, "new rows", turn, pool.Add(first, held), tokens)};
}

}  // namespace kvlift
