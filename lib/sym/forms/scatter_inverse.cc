#include "sym/forms/scatter_inverse.h"

#include <algorithm>
#include <utility>

#include "sym/expr/digits.h"

namespace kvlift::sym::internal {
namespace {

// Collects the loads in e that depend on an index, each once.
void CollectLoads(Expr e, int index, std::vector<Expr>* loads) {
  if (!ContainsIndex(e, index)) return;
  if (e->kind() == Kind::kLoad) {
    if (std::find(loads->begin(), loads->end(), e) == loads->end()) loads->push_back(e);
    return;
  }
  for (Expr arg : e->args()) CollectLoads(arg, index, loads);
  for (const Term& term : e->terms()) {
    for (Expr atom : term.atoms) CollectLoads(atom, index, loads);
  }
}

class Inverter {
 public:
  Inverter(OpContext& c, const Shape& data, const Shape& update, std::vector<Coordinate> coords)
      : c_(c),
        pool_(c.pool()),
        data_(data),
        update_(update),
        coords_(std::move(coords)),
        solved_(update.size(), nullptr) {
    facts_.extents.assign(kUpdateBase, nullptr);
    std::copy(data.begin(), data.end(), facts_.extents.begin());
    facts_.extents.insert(facts_.extents.end(), update.begin(), update.end());
  }

  std::optional<Inverse> Run() {
    for (size_t k = 0; k < update_.size(); ++k) {
      if (update_[k]->is_integer(1)) Solve(static_cast<int>(k), pool_.Integer(0));
    }
    while (SolveOne(/*from_host=*/false) || SolveOne(/*from_host=*/true)) {
    }
    Expr condition = condition_;
    for (const Coordinate& coordinate : coords_) {
      if (!Unsolved(coordinate.place).empty()) return std::nullopt;
      const Expr place = Wrapped(coordinate, coordinate.place, pool_.Integer(1));
      if (place == nullptr) return std::nullopt;
      condition = c_.engine().And(condition, IsAt(coordinate.axis, place));
    }
    for (size_t k = 0; k < update_.size(); ++k) {
      // Otherwise several update elements would be written to one place.
      if (solved_[k] == nullptr) return std::nullopt;
      condition = c_.engine().And(condition, pool_.Le(pool_.Integer(0), solved_[k], facts_));
      condition = c_.engine().And(condition, pool_.Lt(solved_[k], update_[k], facts_));
    }
    for (const auto& [e, why] : needs_) {
      c_.AssumeNonNegative(AssumptionReason::kInside, e, facts_, why);
    }
    for (Expr e : consecutive_) {
      c_.Assume(AssumptionReason::kCountsUp, e, "consecutive indices of a scatter");
    }
    return Inverse{solved_, condition};
  }

 private:
  // Returns index == place. If the place is at an end of the axis, this is a bound on the index.
  Expr IsAt(int axis, Expr place) {
    const Expr index = pool_.Index(axis);
    const Expr last = pool_.Sub(data_[axis], pool_.Integer(1));
    if (NonNegative(pool_, pool_.Sub(place, last), facts_)) return pool_.Le(place, index, facts_);
    if (NonNegative(pool_, pool_.Neg(place), facts_)) return pool_.Le(index, place, facts_);
    const Expr difference = pool_.Sub(index, place);
    const bool equal =
        NonNegative(pool_, difference, facts_) && NonNegative(pool_, pool_.Neg(difference), facts_);
    return equal ? pool_.True() : pool_.Eq(index, place, facts_);
  }

  Expr UpdateIndex(int k) { return pool_.Index(kUpdateBase + k); }

  std::vector<int> Unsolved(Expr e) {
    std::vector<int> result;
    for (size_t k = 0; k < update_.size(); ++k) {
      const int index = static_cast<int>(k);
      if (solved_[k] == nullptr && ContainsIndex(e, kUpdateBase + index)) result.push_back(index);
    }
    return result;
  }

  Expr Replace(Expr e, int k, Expr value) {
    Pool::Substitution s;
    s.indices.assign(kUpdateBase + k + 1, nullptr);
    s.indices.back() = value;
    return pool_.Substitute(e, s, facts_);
  }

  void Solve(int k, Expr value) {
    solved_[k] = value;
    for (Coordinate& coordinate : coords_) {
      coordinate.place = Replace(coordinate.place, k, value);
    }
  }

  // Returns where the places start .. start + length - 1 are on the axis: negative ones count from
  // its end. Places from data that may have either sign are taken to be >= 0. Returns null if they
  // may have both signs.
  Expr Wrapped(const Coordinate& coordinate, Expr start, Expr length) {
    const Expr one = pool_.Integer(1);
    const Expr extent = data_[coordinate.axis];
    const Expr end = pool_.Add(start, length);
    const bool of_host = c_.engine().IsGivenByHost(start);
    if (coordinate.digit) {
      if (!of_host) return nullptr;
      needs_.emplace_back(start, "index of a scatter");
      needs_.emplace_back(pool_.Sub(extent, end), "rows of a flattened axis");
      return start;
    }
    if (NonNegative(pool_, start, facts_)) return start;
    if (NonNegative(pool_, pool_.Neg(end), facts_)) return pool_.Add(extent, start);
    const bool may_be_assumed = of_host && c_.engine().DependsOnData(start);
    if (length == one && !may_be_assumed) {
      const Expr negative = pool_.Lt(start, pool_.Integer(0), facts_);
      return c_.engine().Select(negative, pool_.Add(extent, start), start);
    }
    if (!may_be_assumed) return nullptr;
    needs_.emplace_back(start, "index of a scatter");
    return start;
  }

  // Solves one coordinate that depends on a single unsolved index. Returns false if there is none.
  bool SolveOne(bool from_host) {
    for (size_t n = 0; n < coords_.size(); ++n) {
      const std::vector<int> open = Unsolved(coords_[n].place);
      if (open.size() != 1) continue;
      if (from_host ? SolveHost(n, open[0]) : SolvePlace(n, open[0], coords_[n].place)) return true;
    }
    return false;
  }

  // Solves place = w + u, (w + u) mod M or clamp(w + u, low, high) for the index u.
  bool SolvePlace(size_t n, int k, Expr place) {
    const Coordinate coordinate = coords_[n];
    const Expr start = StartOf(place, k);
    if (start == nullptr && !coordinate.digit && SolveModulo(n, k, place)) return true;
    return start == nullptr ? SolveClamped(n, k, place) : SolveFrom(n, k, start);
  }

  bool SolveFrom(size_t n, int k, Expr start) {
    const Coordinate coordinate = coords_[n];
    const Expr wrapped = Wrapped(coordinate, start, update_[k]);
    if (wrapped == nullptr) return false;
    Take(n, k, pool_.Sub(pool_.Index(coordinate.axis), wrapped));
    return true;
  }

  // Solves places that are w + u unless the host gives numbers outside of some bounds, which it is
  // assumed not to do: several rows would be written to one place there, or rows would be apart.
  bool SolveClamped(size_t n, int k, Expr place) {
    std::vector<std::pair<Expr, Expr>> bounds;  // conditions, and the place where each is false
    while (place->kind() == Kind::kSelect && ContainsIndex(place->args()[0], kUpdateBase + k)) {
      const auto args = place->args();
      bool then = ContainsIndex(args[1], kUpdateBase + k);
      if (then == ContainsIndex(args[2], kUpdateBase + k)) {
        // Each row on its own may count from the end of the axis.
        const Expr extent = data_[coords_[n].axis], more = pool_.Sub(args[1], args[2]);
        then = more == pool_.Neg(extent);
        if (!then && more != extent) return false;
      }
      for (Expr part : ConjunctsOf(then ? args[0] : pool_.Not(args[0]))) {
        bounds.emplace_back(part, args[then ? 2 : 1]);
      }
      place = args[then ? 1 : 2];
    }
    const Expr start = StartOf(place, k);
    if (bounds.empty() || start == nullptr) return false;
    std::vector<Expr> needs;
    // Rows that lie inside the axis must not be clamped.
    const Expr behind =
        pool_.Sub(data_[coords_[n].axis], pool_.Add(start, update_[static_cast<size_t>(k)]));
    for (const auto& [bound, otherwise] : bounds) {
      const Expr need = RoomBelow(bound, pool_.Sub(place, otherwise), k);
      const bool inside = need != nullptr && (NonNegative(pool_, pool_.Sub(need, start), facts_) ||
                                              NonNegative(pool_, pool_.Sub(need, behind), facts_));
      if (!inside) return false;
      needs.push_back(need);
    }
    if (!SolveFrom(n, k, start)) return false;
    for (const Expr need : needs) needs_.emplace_back(need, "clamped index of a scatter");
    return true;
  }

  // Returns what must be >= 0 for a comparison of a number of the host to hold for all u, or for a
  // difference to be 0 where it does not hold. Returns null for other conditions.
  Expr RoomBelow(Expr bound, Expr difference, int k) {
    const bool negated = bound->kind() == Kind::kNot;
    const Expr compared = negated ? bound->args()[0] : bound;
    if (compared->kind() != Kind::kLe || !c_.engine().IsGivenByHost(compared->args()[0])) {
      return nullptr;
    }
    // x <= 0 or x >= 1
    const Expr x = compared->args()[0], one = pool_.Integer(1);
    Expr room = negated ? pool_.Sub(x, one) : pool_.Neg(x);
    const Expr more = pool_.Add(room, one);
    if (more == difference || more == pool_.Neg(difference)) room = more;
    const auto linear = LinearIn(pool_, room, UpdateIndex(k));
    if (!linear || ContainsIndex(linear->rest, kUpdateBase + k)) return nullptr;
    if (linear->coefficient >= 0) return linear->rest;
    const Expr last = pool_.Sub(update_[k], one);
    return pool_.Add(linear->rest, pool_.Mul(pool_.Integer(linear->coefficient), last));
  }

  void Take(size_t n, int k, Expr value) {
    coords_.erase(coords_.begin() + static_cast<std::ptrdiff_t>(n));
    Solve(k, value);
  }

  // Returns w of a place w + u, where w may be a select; null if the place has another form.
  Expr StartOf(Expr place, int k) {
    if (place->kind() == Kind::kSelect) {
      if (ContainsIndex(place->args()[0], kUpdateBase + k)) return nullptr;
      const Expr a = StartOf(place->args()[1], k), b = StartOf(place->args()[2], k);
      return a == nullptr || b == nullptr ? nullptr : pool_.Select(place->args()[0], a, b);
    }
    const auto linear = LinearIn(pool_, place, UpdateIndex(k));
    return linear && linear->coefficient == 1 ? linear->rest : nullptr;
  }

  // Solves a place n - M * (n div M) with n = w + u: u = (i - w) mod M.
  bool SolveModulo(size_t n, int k, Expr place) {
    for (Expr division : DivisionsOf(place)) {
      const Expr number = division->args()[0], modulus = division->args()[1];
      if (pool_.Sub(number, pool_.Mul(modulus, division)) != place) continue;
      const Expr start = StartOf(number, k);
      if (start == nullptr || ContainsIndex(modulus, kUpdateBase + k)) return false;
      const int axis = coords_[n].axis;
      const Expr index = pool_.Index(axis);
      needs_.emplace_back(pool_.Sub(modulus, update_[k]), "no place is written twice");
      condition_ = c_.engine().And(condition_, pool_.Lt(index, modulus, facts_));
      Take(n, k, pool_.Mod(pool_.Sub(index, start), modulus, facts_));
      return true;
    }
    return false;
  }

  // Solves places that are read from an integer vector that the host gives, which is assumed to
  // hold consecutive indices.
  bool SolveHost(size_t n, int k) {
    std::vector<Expr> loads;
    CollectLoads(coords_[n].place, kUpdateBase + k, &loads);
    if (loads.size() != 1 || !c_.engine().graph().is_graph_input(loads[0]->source())) return false;
    if (!IsIntegerType(c_.engine().TypeOf(loads[0]->source()))) return false;
    const Expr start = Replace(loads[0], k, pool_.Integer(0));
    Pool::Substitution s;
    s.atoms[loads[0]] = pool_.Add(start, UpdateIndex(k));
    const Expr place = pool_.Substitute(WithoutWrap(coords_[n]), s, facts_);
    // The assumption shows the unsolved index as the index of the data axis that it writes to.
    const Expr index = pool_.Index(coords_[n].axis);
    const Expr consecutive =
        pool_.Eq(Replace(loads[0], k, index), pool_.Add(start, index), Facts{});
    if (!SolvePlace(n, k, place)) return false;
    consecutive_.push_back(consecutive);
    return true;
  }

  // Returns x for a place x < 0 ? x + M : x, as some exporters write an index: the scatter itself
  // reads negative indices in this way.
  Expr WithoutWrap(const Coordinate& coordinate) {
    const Expr place = coordinate.place;
    if (place->kind() != Kind::kSelect) return place;
    for (int k : {1, 2}) {
      const Expr x = place->args()[k], wrapped = place->args()[3 - k];
      const Expr negative = pool_.Lt(x, pool_.Integer(0), facts_);
      const Expr condition = k == 2 ? place->args()[0] : pool_.Not(place->args()[0]);
      if (condition == negative && wrapped == pool_.Add(x, data_[coordinate.axis])) return x;
    }
    return place;
  }

  OpContext& c_;
  Pool& pool_;
  const Shape& data_;
  Shape update_;
  std::vector<Coordinate> coords_;
  std::vector<Expr> solved_;
  Expr condition_ = pool_.True();
  // The assumptions of the result: expressions that are >= 0, and vectors that hold consecutive
  // indices.
  std::vector<std::pair<Expr, std::string_view>> needs_;
  std::vector<Expr> consecutive_;
  Facts facts_;
};

}  // namespace

std::optional<Inverse> InvertPlaces(OpContext& c, const Shape& data, const Shape& update,
                                    std::vector<Coordinate> places) {
  return Inverter(c, data, update, std::move(places)).Run();
}

}  // namespace kvlift::sym::internal
