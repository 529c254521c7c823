// Slice, with bounds clamped as the operator clamps them. Bounds from data, and sizes that cut a
// table or an axis that an input declares, are assumed to lie inside of it. Source: ONNX Slice-13.
#include <algorithm>

#include "sym/forms/forms_engine.h"

namespace kvlift::sym::internal {
namespace {

constexpr int64_t kFarAway = (int64_t{1} << 31) - 1;  // stands for "to the end"

struct Cut {
  Expr start;
  Expr length;
  int64_t step;
};

bool Proven(Pool& pool, Expr e) { return NonNegative(pool, e, Facts{}); }

// Resolves the bounds of a Slice with a positive step, case by case. `known_` has the conditions of
// the current case.
class ForwardBounds {
 public:
  ForwardBounds(OpContext& c, Expr extent) : c_(c), pool_(c.pool()), extent_(extent) {}

  // Returns a bound as an index in [0, extent].
  Expr Place(Expr bound) {
    if (bound->kind() == Kind::kSelect) {
      const auto q = bound->args();
      const size_t before = known_.size();
      Know(q[0]);
      const Expr yes = Place(q[1]);
      known_.resize(before);
      Know(pool_.Not(q[0]));
      const Expr no = Place(q[2]);
      known_.resize(before);
      return c_.engine().Select(q[0], yes, no);
    }
    if (bound->kind() == Kind::kInteger) return Constant(bound->value());
    if (!c_.engine().IsGivenByHost(bound)) return Computed(bound);
    const bool given = c_.engine().DependsOnData(bound);
    if (!Holds(bound)) {
      // The bound is never positive. It is assumed not to be 0, and so counts from the end.
      if (Holds(pool_.Neg(bound))) {
        Need(pool_.Sub(pool_.Neg(bound), pool_.Integer(1)));
        return FromEnd(bound);
      }
      // The host chooses the length of a mask, so it is assumed to choose one that contains the
      // bound. The last rows of a table, as many as a size says, are assumed to be there.
      if (!given && !IsOfHost(extent_) && !IsTakenOffTable(bound)) {
        const Expr negative = pool_.Lt(bound, pool_.Integer(0), Facts{});
        return c_.engine().Select(negative, FromEnd(bound), FromFront(bound, given));
      }
      Need(bound);
    }
    return FromFront(bound, given);
  }

 private:
  // Resolves a bound that the model computes, which may be of either sign and lie outside.
  Expr Computed(Expr bound) {
    const Interval range = c_.engine().RangeOf(bound, Facts{});
    const Expr zero = pool_.Integer(0);
    const Expr behind = pool_.Min(bound, extent_, Facts{});
    const Expr from_end = pool_.Max(pool_.Add(extent_, bound), zero, Facts{});
    if (range.low >= 0) return behind;
    if (range.high < 0) return from_end;
    return c_.engine().Select(pool_.Lt(bound, zero, Facts{}), from_end, behind);
  }

  // Resolves a negative bound.
  Expr FromEnd(Expr bound) {
    const Expr place = pool_.Add(extent_, bound);
    if (Holds(place)) return place;
    // The host chooses the length of a mask, so it is assumed to choose one with enough elements.
    if (c_.engine().DependsOnData(bound) || IsOfHost(extent_)) {
      Need(place);
      return place;
    }
    return pool_.Max(place, pool_.Integer(0), Facts{});
  }

  // Resolves a bound that is not negative.
  Expr FromFront(Expr bound, bool given) {
    if (Holds(pool_.Sub(bound, extent_))) return extent_;
    if (Holds(pool_.Sub(extent_, bound))) return bound;
    if (HoldsWithTokens(pool_.Sub(extent_, bound))) {
      Need(pool_.Sub(extent_, bound));
      return bound;
    }
    if (!given && !IsGiven(extent_)) return pool_.Min(bound, extent_, Facts{});
    Need(pool_.Sub(extent_, bound));
    return bound;
  }

  // Returns true if the bound is the length of a table, which is constant, minus a size.
  bool IsTakenOffTable(Expr bound) const {
    return extent_->kind() == Kind::kInteger && Holds(pool_.Sub(extent_, bound));
  }

  // Returns true for the length of a mask or of another input that IsCountOrMask is true for.
  bool IsOfHost(Expr extent) const {
    if (extent->kind() != Kind::kDim) return false;
    const auto origin = c_.engine().OriginOf(extent->dim());
    return origin && c_.engine().IsCountOrMask(origin->input);
  }

  // Returns true if e >= 0 is provable where all axes that inputs declare have an element.
  bool HoldsWithTokens(Expr e) const {
    Pool::Substitution s;
    for (const DimSymbol& dim : DimsOf(e)) {
      if (c_.engine().OriginOf(dim)) s.dims[dim] = pool_.Internal("at least one " + dim.name(), 1);
    }
    return !s.dims.empty() && Proven(pool_, pool_.Substitute(e, s, Facts{}));
  }

  // Returns true for the length of a table or of an axis that an input declares.
  bool IsGiven(Expr extent) const {
    return extent->kind() == Kind::kInteger ||
           (extent->kind() == Kind::kDim && c_.engine().OriginOf(extent->dim()));
  }

  void Know(Expr condition) {
    for (Expr part : ConjunctsOf(condition)) known_.push_back(part);
  }

  bool Holds(Expr e) const {
    if (c_.engine().IsNonNegative(e, Facts{})) return true;
    return std::any_of(known_.begin(), known_.end(), [&](Expr k) {
      return k->kind() == Kind::kLe && Proven(pool_, pool_.Add(e, k->args()[0]));
    });
  }

  void Need(Expr e) {
    if (Holds(e)) return;
    if (known_.empty()) {
      return c_.AssumeNonNegative(AssumptionReason::kInside, e, Facts{}, "bound of a Slice");
    }
    Expr here = pool_.True();
    for (Expr k : known_) here = pool_.And(here, k);
    c_.Assume(AssumptionReason::kInside,
              pool_.Or(pool_.Not(here), pool_.Le(pool_.Integer(0), e, Facts{})),
              "bound of a Slice");
  }

  Expr Constant(int64_t bound) {
    if (extent_->kind() == Kind::kInteger) {
      const int64_t x = bound < 0 ? bound + extent_->value() : bound;
      return pool_.Integer(std::clamp<int64_t>(x, 0, extent_->value()));
    }
    const Interval extent = c_.engine().RangeOf(extent_, Facts{});
    if (static_cast<double>(bound) >= extent.high) return extent_;
    if (-static_cast<double>(bound) >= extent.high) return pool_.Integer(0);
    // An axis that an input declares has an element in every step.
    if (bound == 1 && IsGiven(extent_)) Need(pool_.Sub(extent_, pool_.Integer(1)));
    if (bound >= 0) {
      const Expr end = pool_.Integer(bound);
      return Holds(pool_.Sub(extent_, end)) ? end : pool_.Min(end, extent_, Facts{});
    }
    const Expr place = pool_.Add(extent_, pool_.Integer(bound));
    return Proven(pool_, place) ? place : pool_.Max(place, pool_.Integer(0), Facts{});
  }

  OpContext& c_;
  Pool& pool_;
  Expr extent_;
  std::vector<Expr> known_;
};

Expr ForwardBound(OpContext& c, Expr bound, Expr extent) {
  return c.engine().clipped().Simplified(ForwardBounds(c, extent).Place(bound));
}

std::optional<Cut> CutForward(OpContext& c, Expr start, Expr end, int64_t step, Expr extent) {
  Pool& pool = c.pool();
  const Expr first = ForwardBound(c, start, extent);
  Expr length = pool.Sub(ForwardBound(c, end, extent), first);
  if (length->kind() == Kind::kInteger) {
    length = pool.Integer(std::max<int64_t>(length->value(), 0));
  } else if (Proven(pool, pool.Neg(length))) {
    length = pool.Integer(0);
  } else if (c.engine().DependsOnData(length) && c.engine().IsGivenByHost(length)) {
    c.AssumeNonNegative(AssumptionReason::kInside, length, Facts{}, "length of a Slice");
  } else if (!c.engine().IsNonNegative(length, Facts{})) {
    length = pool.Max(length, pool.Integer(0), Facts{});
  }
  length = c.engine().StridedLength(length, step);
  if (length == nullptr) return std::nullopt;
  return Cut{first, length, step};
}

// Handles negative steps where all sizes are constant, or where the whole axis is reversed.
std::optional<Cut> CutBackward(OpContext& c, Expr start, Expr end, int64_t step, Expr extent) {
  Pool& pool = c.pool();
  const bool constants = start->kind() == Kind::kInteger && end->kind() == Kind::kInteger;
  if (constants && extent->kind() == Kind::kInteger) {
    const int64_t n = extent->value();
    const auto clamp = [&](int64_t x, int64_t low) {
      return std::clamp<int64_t>(x < 0 && x >= -n ? x + n : x, low, std::max(low, n - 1));
    };
    const int64_t first = clamp(start->value(), start->value() < -n ? -1 : 0);
    const int64_t last = clamp(end->value(), -1);
    const int64_t length = n == 0 ? 0 : std::max<int64_t>(0, (first - last - step - 1) / -step);
    return Cut{pool.Integer(std::max<int64_t>(first, 0)), pool.Integer(length), step};
  }
  const Expr one = pool.Integer(1);
  const bool from_end = start->is_integer(-1) || start == pool.Sub(extent, one) ||
                        (start->kind() == Kind::kInteger && start->value() >= kFarAway);
  const bool to_front = end == pool.Sub(pool.Neg(extent), one) ||
                        (end->kind() == Kind::kInteger && end->value() <= -kFarAway);
  if (!from_end || !to_front) return std::nullopt;
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
