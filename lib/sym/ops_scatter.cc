// Scatters, by inverting the map from update indices to places in the data.
#include <algorithm>

#include "sym/forms_engine.h"

namespace kvlift::sym::internal {
namespace {

// Update indices are i16, i17, ... while the map is inverted; indices of the data are i0, i1, ...
constexpr int kUpdateBase = 16;
constexpr int kMaxRank = 12;

// Place of the update element at i16.. along one axis of the data.
struct Coordinate {
  int axis;
  Expr place;
};

// The update index each data index comes from, and when there is one.
struct Inverse {
  std::vector<Expr> update_index;
  Expr condition;
};

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

  // Null condition if the map cannot be inverted.
  std::optional<Inverse> Run() {
    for (size_t k = 0; k < update_.size(); ++k) {
      if (update_[k]->is_integer(1)) Solve(static_cast<int>(k), pool_.Integer(0));
    }
    while (SolveLinear()) {
    }
    while (SolveContiguous()) {
    }
    Expr condition = pool_.True();
    for (const Coordinate& coordinate : coords_) {
      if (!Unsolved(coordinate.place).empty()) return std::nullopt;
      const Expr place = Wrapped(coordinate.place, pool_.Integer(1), data_[coordinate.axis]);
      if (place == nullptr) return std::nullopt;
      condition = c_.engine().And(condition, Equals(pool_.Index(coordinate.axis), place));
    }
    for (size_t k = 0; k < update_.size(); ++k) {
      // Several update elements would go to one place.
      if (solved_[k] == nullptr) return std::nullopt;
      condition = c_.engine().And(condition, pool_.Le(pool_.Integer(0), solved_[k], facts_));
      condition = c_.engine().And(condition, pool_.Lt(solved_[k], update_[k], facts_));
    }
    return Inverse{solved_, condition};
  }

 private:
  Expr Equals(Expr a, Expr b) {
    const Expr difference = pool_.Sub(a, b);
    const bool equal =
        NonNegative(pool_, difference, facts_) && NonNegative(pool_, pool_.Neg(difference), facts_);
    return equal ? pool_.True() : pool_.Eq(a, b, facts_);
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

  // Where the places start + 0 .. start + length - 1 are: negative ones count from the end. Data
  // that may be either is taken to be >= 0. Null if they are of both signs.
  Expr Wrapped(Expr start, Expr length, Expr extent) {
    const Expr one = pool_.Integer(1);
    const Expr end = pool_.Add(start, length);
    if (NonNegative(pool_, start, facts_)) return start;
    if (NonNegative(pool_, pool_.Neg(end), facts_)) return pool_.Add(extent, start);
    if (length == one && !c_.engine().DependsOnData(start)) {
      const Expr negative = pool_.Lt(start, pool_.Integer(0), facts_);
      return c_.engine().Select(negative, pool_.Add(extent, start), start);
    }
    if (!c_.engine().DependsOnData(start)) return nullptr;
    c_.AssumeNonNegative(start, facts_, "index of a scatter");
    return start;
  }

  // One axis whose place is w + u with a single open index u: u = i - w.
  bool SolveLinear() {
    for (size_t n = 0; n < coords_.size(); ++n) {
      const std::vector<int> open = Unsolved(coords_[n].place);
      if (open.size() != 1) continue;
      const auto linear = LinearIn(pool_, coords_[n].place, UpdateIndex(open[0]));
      if (!linear || linear->coefficient != 1) continue;
      if (Take(n, open[0], linear->rest)) return true;
    }
    return false;
  }

  bool Take(size_t n, int k, Expr start) {
    const Coordinate coordinate = coords_[n];
    start = Wrapped(start, update_[k], data_[coordinate.axis]);
    if (start == nullptr) return false;
    coords_.erase(coords_.begin() + static_cast<std::ptrdiff_t>(n));
    Solve(k, pool_.Sub(pool_.Index(coordinate.axis), start));
    return true;
  }

  // Places read from an index tensor: invertible if they are consecutive.
  bool SolveContiguous() {
    for (size_t n = 0; n < coords_.size(); ++n) {
      const Expr place = coords_[n].place;
      const std::vector<int> open = Unsolved(place);
      const bool read = open.size() == 1 && IsRead(place, UpdateIndex(open[0]));
      if (!read || !c_.engine().DependsOnData(place)) continue;
      const Expr start = Replace(place, open[0], pool_.Integer(0));
      // The open index is shown as the index of the data's axis it writes to.
      const Expr index = pool_.Index(coords_[n].axis);
      const Expr consecutive =
          pool_.Eq(Replace(place, open[0], index), pool_.Add(start, index), Facts{});
      c_.Assume(consecutive, "consecutive indices of a scatter");
      if (Take(n, open[0], start)) return true;
    }
    return false;
  }

  // A load at the index, or such a load shifted by what does not depend on it.
  bool IsRead(Expr place, Expr index) {
    if (place->kind() == Kind::kLoad) return true;
    Expr load = nullptr;
    for (const Term& term : place->terms()) {
      for (Expr atom : term.atoms) {
        if (!ContainsIndex(atom, index->index())) continue;
        const bool plain = term.atoms.size() == 1 && term.coefficient == 1;
        if (load != nullptr || !plain || atom->kind() != Kind::kLoad) return false;
        load = atom;
      }
    }
    return load != nullptr;
  }

  OpContext& c_;
  Pool& pool_;
  const Shape& data_;
  Shape update_;
  std::vector<Coordinate> coords_;
  std::vector<Expr> solved_;
  Facts facts_;
};

std::vector<Expr> UpdateIndices(Pool& pool, int rank) {
  std::vector<Expr> result;
  for (int k = 0; k < rank; ++k) result.push_back(pool.Index(kUpdateBase + k));
  return result;
}

Facts UpdateFacts(const Shape& shape) {
  Facts facts;
  facts.extents.assign(kUpdateBase, nullptr);
  facts.extents.insert(facts.extents.end(), shape.begin(), shape.end());
  return facts;
}

// `tail`: trailing data axes the update has too.
void SetScattered(OpContext& c, const std::optional<Inverse>& inverse, int tail) {
  const Value& data = c.in(0);
  const Value& update = c.in(2);
  if (!inverse) return c.SetOpaque(0, data.form.shape);
  c.Set(0, data.form.shape, [&](Indices ix, const Facts& facts) -> Expr {
    Pool& pool = c.pool();
    Pool::Substitution s;
    s.indices.assign(ix.begin(), ix.end());
    std::vector<Expr> own;
    for (Expr e : inverse->update_index) own.push_back(pool.Substitute(e, s, facts));
    own.insert(own.end(), ix.end() - tail, ix.end());
    const Expr condition = pool.Substitute(inverse->condition, s, facts);
    const Expr fresh = c.engine().At(update, own, facts);
    const Expr old = c.engine().At(data, ix, facts);
    if (fresh == nullptr || old == nullptr) return nullptr;
    return c.engine().Select(condition, fresh, old);
  });
}

// A small vector updated at constant places.
bool SetVector(OpContext& c) {
  const auto data = c.Elements(0), update = c.Elements(2);
  const Value& index = c.in(1);
  if (c.in(0).rank() != 1 || !data || !update) return false;
  std::vector<Expr> result = *data;
  for (size_t k = 0; k < update->size(); ++k) {
    std::vector<Expr> at{c.pool().Integer(static_cast<int64_t>(k))};
    if (index.rank() == 2) at.push_back(c.pool().Integer(0));
    const Expr place = c.engine().At(index, at, Facts{});
    if (place == nullptr || place->kind() != Kind::kInteger) return false;
    const int64_t n = static_cast<int64_t>(result.size());
    const int64_t at_front = place->value() < 0 ? place->value() + n : place->value();
    if (at_front < 0 || at_front >= n) return false;
    result[at_front] = (*update)[k];
  }
  c.SetElements(0, false, std::move(result));
  return true;
}

bool Overwrites(const OpContext& c) {
  const std::string reduction = StringAttribute(c.proto(), "reduction", "none");
  return reduction == "none" || reduction.empty();
}

}  // namespace

void OpScatterND(OpContext& c) {
  if (!c.Known(1)) return;
  const Value& data = c.in(0);
  if (!c.Known(3) || !Overwrites(c) || data.rank() > kMaxRank) {
    return c.SetOpaque(0, data.form.shape);
  }
  const Value& index = c.in(1);
  const Value& update = c.in(2);
  const int r = index.rank() - 1;
  if (r < 0 || r > kMaxRank || index.dim(r)->kind() != Kind::kInteger) {
    return c.SetOpaque(0, data.form.shape);
  }
  const int64_t width = index.dim(r)->value();
  const int tail = data.rank() - static_cast<int>(width);
  if (width < 1 || tail < 0 || update.rank() != r + tail) {
    return c.SetOpaque(0, data.form.shape);
  }
  if (data.rank() == 1 && index.rank() == 2 && SetVector(c)) return;
  Pool& pool = c.pool();
  Shape batch(update.form.shape.begin(), update.form.shape.begin() + r);
  for (int k = 0; k < r; ++k) batch[k] = c.Unify(batch[k], index.dim(k), "scattered axis");
  const Facts facts = UpdateFacts(batch);
  std::vector<Coordinate> coords;
  for (int64_t k = 0; k < width; ++k) {
    std::vector<Expr> at = UpdateIndices(pool, r);
    at.push_back(pool.Integer(k));
    const Expr place = c.engine().At(index, at, facts);
    if (place == nullptr) return c.SetOpaque(0, data.form.shape);
    coords.push_back({static_cast<int>(k), place});
  }
  SetScattered(c, Inverter(c, data.form.shape, batch, std::move(coords)).Run(), tail);
}

void OpScatterElements(OpContext& c) {
  if (!c.Known(1)) return;
  const Value& data = c.in(0);
  const auto axis = NormalAxis(c.Int("axis", 0), data.rank());
  const bool usable = c.Known(3) && Overwrites(c) && axis && data.rank() <= kMaxRank &&
                      c.in(1).rank() == data.rank() && c.in(2).rank() == data.rank();
  if (!usable) return c.SetOpaque(0, data.form.shape);
  if (data.rank() == 1 && SetVector(c)) return;
  Shape shape = c.in(2).form.shape;
  for (int k = 0; k < data.rank(); ++k) {
    shape[k] = c.Unify(shape[k], c.in(1).dim(k), "scattered axis");
  }
  std::vector<Coordinate> coords;
  const std::vector<Expr> at = UpdateIndices(c.pool(), data.rank());
  for (int k = 0; k < data.rank(); ++k) {
    const Expr place = k == *axis ? c.engine().At(c.in(1), at, UpdateFacts(shape)) : at[k];
    if (place == nullptr) return c.SetOpaque(0, data.form.shape);
    coords.push_back({k, place});
  }
  SetScattered(c, Inverter(c, data.form.shape, shape, std::move(coords)).Run(), 0);
}

void OpTensorScatter(OpContext& c) {
  if (!c.Known(1)) return;
  const Value& data = c.in(0);
  const auto axis = NormalAxis(c.Int("axis", -2), data.rank());
  const bool linear = StringAttribute(c.proto(), "mode", "linear") == "linear";
  if (!c.Known(2) || !axis || *axis == 0 || !linear || c.in(1).rank() != data.rank() ||
      (c.has(2) && (!c.in(2).form.known_rank || c.in(2).rank() != 1))) {
    return c.SetOpaque(0, data.form.shape);
  }
  const Value& update = c.in(1);
  Pool& pool = c.pool();
  c.Set(0, data.form.shape, [&](Indices ix, const Facts& facts) -> Expr {
    const Expr start = c.has(2) ? c.engine().At(c.in(2), ix.subspan(0, 1), facts) : pool.Integer(0);
    if (start == nullptr) return nullptr;
    std::vector<Expr> own(ix.begin(), ix.end());
    own[*axis] = pool.Sub(ix[*axis], start);
    const Expr inside = c.engine().And(pool.Le(start, ix[*axis], facts),
                                       pool.Lt(own[*axis], update.dim(*axis), facts));
    const Expr fresh = c.engine().At(update, own, facts);
    const Expr old = c.engine().At(data, ix, facts);
    return fresh == nullptr || old == nullptr ? nullptr : c.engine().Select(inside, fresh, old);
  });
}

}  // namespace kvlift::sym::internal
