// Slice: bounds are clamped exactly where they are known, and assumed to be inside the axis where
// they are not.
#include <algorithm>

#include "sym/forms_engine.h"

namespace kvlift::sym::internal {
namespace {

constexpr int64_t kFarAway = (int64_t{1} << 31) - 1;  // stands for "to the end"

struct Cut {
  Expr start;
  Expr length;
  int64_t step;
};

bool Proven(Pool& pool, Expr e) { return NonNegative(pool, e, Facts{}); }

// A bound of a slice with a positive step, as a place in [0, extent].
Expr ForwardBound(OpContext& c, Expr bound, Expr extent) {
  Pool& pool = c.pool();
  if (bound->kind() == Kind::kSelect) {
    const auto q = bound->args();
    return c.engine().Select(q[0], ForwardBound(c, q[1], extent), ForwardBound(c, q[2], extent));
  }
  const bool is_constant = bound->kind() == Kind::kInteger;
  if (is_constant && bound->value() >= kFarAway) return extent;
  if (is_constant && bound->value() <= -kFarAway) return pool.Integer(0);
  if (is_constant && extent->kind() == Kind::kInteger) {
    const int64_t x = bound->value() < 0 ? bound->value() + extent->value() : bound->value();
    return pool.Integer(std::clamp<int64_t>(x, 0, extent->value()));
  }
  if (is_constant && bound->value() < 0) {
    const Expr place = pool.Add(extent, bound);
    if (Proven(pool, place)) return place;
    return pool.Max(place, pool.Integer(0), Facts{});
  }
  if (!Proven(pool, bound)) {
    // Never positive, and 0 only where nothing is sliced off: it counts from the end.
    if (Proven(pool, pool.Neg(bound))) {
      const Expr place = pool.Add(extent, bound);
      c.AssumeNonNegative(pool.Sub(pool.Neg(bound), pool.Integer(1)), Facts{}, "bound of a Slice");
      c.AssumeNonNegative(place, Facts{}, "bound of a Slice");
      return place;
    }
    c.AssumeNonNegative(bound, Facts{}, "bound of a Slice");
  }
  if (Proven(pool, pool.Sub(bound, extent))) return extent;
  c.AssumeNonNegative(pool.Sub(extent, bound), Facts{}, "bound of a Slice");
  return bound;
}

std::optional<Cut> CutForward(OpContext& c, Expr start, Expr end, int64_t step, Expr extent) {
  Pool& pool = c.pool();
  const Expr first = ForwardBound(c, start, extent);
  Expr length = pool.Sub(ForwardBound(c, end, extent), first);
  if (length->kind() == Kind::kInteger) {
    length = pool.Integer(std::max<int64_t>(length->value(), 0));
  } else if (Proven(pool, pool.Neg(length))) {
    length = pool.Integer(0);
  } else {
    c.AssumeNonNegative(length, Facts{}, "length of a Slice");
  }
  if (step != 1) {
    length = pool.FloorDiv(pool.Add(length, pool.Integer(step - 1)), pool.Integer(step), Facts{});
  }
  return Cut{first, length, step};
}

// Negative steps: constants, or the whole axis reversed.
std::optional<Cut> CutBackward(OpContext& c, Expr start, Expr end, int64_t step, Expr extent) {
  Pool& pool = c.pool();
  if (start->kind() != Kind::kInteger || end->kind() != Kind::kInteger) return std::nullopt;
  if (extent->kind() == Kind::kInteger) {
    const int64_t n = extent->value();
    const auto clamp = [&](int64_t x, int64_t low) {
      return std::clamp<int64_t>(x < 0 && x >= -n ? x + n : x, low, std::max(low, n - 1));
    };
    const int64_t first = clamp(start->value(), start->value() < -n ? -1 : 0);
    const int64_t last = clamp(end->value(), -1);
    const int64_t length = n == 0 ? 0 : std::max<int64_t>(0, (first - last - step - 1) / -step);
    return Cut{pool.Integer(std::max<int64_t>(first, 0)), pool.Integer(length), step};
  }
  const bool from_end = start->value() == -1 || start->value() >= kFarAway;
  if (!from_end || end->value() > -kFarAway) return std::nullopt;
  const Expr length =
      pool.FloorDiv(pool.Add(extent, pool.Integer(-step - 1)), pool.Integer(-step), Facts{});
  return Cut{pool.Sub(extent, pool.Integer(1)), length, step};
}

}  // namespace

void OpSlice(OpContext& c) {
  if (!c.Known(1)) return;
  const Value& x = c.in(0);
  const auto starts = c.Elements(1), ends = c.Elements(2);
  if (!starts || !ends || starts->size() != ends->size()) return;
  std::vector<int64_t> axis_list;
  if (c.has(3)) {
    const auto given = c.ConstantInts(3);
    if (!given) return;
    axis_list = *given;
  } else {
    for (size_t k = 0; k < starts->size(); ++k) axis_list.push_back(static_cast<int64_t>(k));
  }
  const auto axes = NormalAxes(axis_list, x.rank());
  if (!axes || axes->size() != starts->size()) return;
  std::vector<int64_t> steps(axes->size(), 1);
  if (c.has(4)) {
    const auto given = c.ConstantInts(4);
    if (!given || given->size() != axes->size()) return;
    steps = *given;
  }
  Pool& pool = c.pool();
  Shape out = x.form.shape;
  std::vector<std::optional<Cut>> cuts(x.rank());
  bool known = true;
  for (size_t k = 0; k < axes->size(); ++k) {
    const int axis = (*axes)[k];
    constexpr int64_t kMaxStep = int64_t{1} << 32;
    if (steps[k] == 0 || steps[k] > kMaxStep || steps[k] < -kMaxStep) return;
    cuts[axis] = steps[k] > 0 ? CutForward(c, (*starts)[k], (*ends)[k], steps[k], x.dim(axis))
                              : CutBackward(c, (*starts)[k], (*ends)[k], steps[k], x.dim(axis));
    known = known && cuts[axis].has_value();
    out[axis] = cuts[axis] ? cuts[axis]->length : c.engine().OwnDim(c.output(0), axis);
  }
  if (!known) return c.SetOpaque(0, std::move(out));
  c.Set(0, std::move(out), [&](Indices ix, const Facts& facts) -> Expr {
    std::vector<Expr> own(ix.begin(), ix.end());
    for (int k = 0; k < x.rank(); ++k) {
      if (!cuts[k]) continue;
      own[k] = pool.Add(cuts[k]->start, pool.Mul(pool.Integer(cuts[k]->step), ix[k]));
    }
    const Expr e = c.engine().Lift(
        std::move(own), [&](absl::Span<const Expr> at) { return c.engine().At(x, at, facts); });
    return e != nullptr && c.engine().HasDataDependentTableRead(e) ? nullptr : e;
  });
}

}  // namespace kvlift::sym::internal
