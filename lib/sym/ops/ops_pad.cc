// Pad with all modes. Source: ONNX Pad-24.
#include <string>

#include "sym/forms/forms_engine.h"

namespace kvlift::sym::internal {
namespace {

// Returns the index of x whose element a padded index shows, in the modes "edge", "wrap" and
// "reflect"; null for other modes.
Expr Mirrored(Pool& pool, const std::string& mode, Expr place, Expr extent, const Facts& facts) {
  const Expr last = pool.Sub(extent, pool.Integer(1));
  if (mode == "edge") {
    return pool.Min(pool.Max(place, pool.Integer(0), facts), last, facts);
  }
  if (mode == "wrap") return pool.Mod(place, extent, facts);
  if (mode != "reflect") return nullptr;
  const Expr front = pool.Max(place, pool.Neg(place), facts);
  return pool.Select(pool.Le(place, last, facts), front,
                     pool.Sub(pool.Mul(pool.Integer(2), last), place));
}

}  // namespace

void OpPad(OpContext& c) {
  if (!c.Known(1)) return;
  const Value& x = c.in(0);
  const auto pads = c.Elements(1);
  if (!pads) return;
  std::vector<int> axes;
  if (c.has(3)) {
    const auto given = c.ConstantInts(3);
    const auto normal = given ? NormalAxes(*given, x.rank()) : std::nullopt;
    if (!normal) return;
    axes = *normal;
  } else {
    for (int k = 0; k < x.rank(); ++k) axes.push_back(k);
  }
  if (pads->size() != 2 * axes.size()) return;
  Pool& pool = c.pool();
  Shape out = x.form.shape, before(x.rank(), pool.Integer(0));
  std::vector<bool> padded(static_cast<size_t>(x.rank()), false);
  for (size_t k = 0; k < axes.size(); ++k) {
    const Expr behind = (*pads)[axes.size() + k];
    before[axes[k]] = (*pads)[k];
    padded[axes[k]] = !(*pads)[k]->is_integer(0) || !behind->is_integer(0);
    out[axes[k]] = pool.Add(out[axes[k]], pool.Add((*pads)[k], behind));
  }
  Expr fill = pool.Integer(0);
  if (c.has(2)) {
    const auto value = c.Elements(2);
    fill = value && value->size() == 1 ? value->front() : nullptr;
  }
  const std::string mode = StringAttribute(c.proto(), "mode", "constant");
  if (mode != "constant") {
    return c.Set(0, out, [&](Indices ix, const Facts& facts) -> Expr {
      std::vector<Expr> own(ix.begin(), ix.end());
      for (int k : axes) {
        own[k] = pool.Sub(ix[k], before[k]);
        if (padded[k]) own[k] = Mirrored(pool, mode, own[k], x.dim(k), facts);
        if (own[k] == nullptr) return nullptr;
      }
      return c.engine().Lift(
          std::move(own), [&](absl::Span<const Expr> at) { return c.engine().At(x, at, facts); });
    });
  }
  if (fill == nullptr) return c.SetOpaque(0, std::move(out));
  c.Set(0, out, [&](Indices ix, const Facts& facts) -> Expr {
    std::vector<Expr> own(ix.begin(), ix.end());
    Expr inside = pool.True();
    for (int k : axes) {
      own[k] = pool.Sub(ix[k], before[k]);
      inside = c.engine().And(inside, pool.Le(before[k], ix[k], facts));
      const Expr end = pool.Add(before[k], x.dim(k));
      inside = c.engine().And(inside, pool.Lt(ix[k], end, facts));
    }
    const Expr element = c.engine().At(x, own, facts);
    return element == nullptr ? nullptr : c.engine().Select(inside, element, fill);
  });
}

}  // namespace kvlift::sym::internal
