// ScatterND, ScatterElements and TensorScatter, by inverting the map from update indices to places
// in the data. Source: ONNX ScatterND-18, ScatterElements-18, TensorScatter-24.
#include <algorithm>

#include "sym/expr/digits.h"
#include "sym/forms/forms_engine.h"
#include "sym/forms/reach.h"
#include "sym/forms/scatter_inverse.h"

namespace kvlift::sym::internal {
namespace {

std::vector<Expr> UpdateIndices(Pool& pool, int rank) {
  std::vector<Expr> result;
  result.reserve(static_cast<size_t>(rank));
  for (int k = 0; k < rank; ++k) result.push_back(pool.Index(kUpdateBase + k));
  return result;
}

Facts UpdateFacts(const Shape& shape) {
  Facts facts;
  facts.extents.assign(kUpdateBase, nullptr);
  facts.extents.insert(facts.extents.end(), shape.begin(), shape.end());
  return facts;
}

// Returns the extents of all digits.
Shape Extents(absl::Span<const Digit> digits) {
  Shape shape;
  for (const Digit& digit : digits) shape.push_back(digit.extent);
  return shape;
}

// A scatter in which flattened axes are split into digits: those of the update as its places are
// computed, those of the data as the data is read.
class Scatter {
 public:
  // `places` has, for each leading axis of the data, the index at which the update element at i16..
  // is written. `update_shape` has the extents of those update axes. Further axes of the update are
  // trailing axes of the data.
  Scatter(OpContext& c, Shape update_shape, std::vector<Expr> places)
      : c_(c),
        pool_(c.pool()),
        update_shape_(std::move(update_shape)),
        places_(std::move(places)) {}

  void Run() {
    const Value& data = c_.in(0);
    const Expr element = Find();
    if (element == nullptr) return c_.SetOpaque(0, data.form.shape);
    c_.Set(0, data.form.shape, [&](Indices ix, const Facts& facts) {
      Pool::Substitution s;
      for (size_t k = 0; k < data_digits_.size(); ++k) {
        s.indices.push_back(DigitOfIndex(pool_, data_digits_, k, ix[data_digits_[k].axis], facts));
      }
      return pool_.Substitute(element, s, facts);
    });
  }

 private:
  // Returns the element over the digits of the data's indices; null if the map cannot be inverted.
  Expr Find() {
    SplitUpdate();
    const Value& data = c_.in(0);
    std::vector<Coordinate> coordinates;
    for (int axis = 0; axis < data.rank(); ++axis) {
      if (!AddAxis(axis, &coordinates)) return nullptr;
    }
    if (data_digits_.size() > kMaxScatterRank || update_digits_.size() > kMaxScatterRank) {
      return nullptr;
    }
    const Shape shape = Extents(data_digits_), update_shape = Extents(update_digits_);
    const auto inverse = InvertPlaces(c_, shape, update_shape, std::move(coordinates));
    if (!inverse) return nullptr;
    const std::vector<Expr> index = DataIndices();
    const Expr old = c_.engine().At(data, index, FactsOf(shape));
    const Expr fresh = UpdateAt(index, shape, *inverse);
    if (old == nullptr || fresh == nullptr) return nullptr;
    const Expr e = c_.engine().Select(inverse->condition, fresh, old);
    // Layers may be written one after the other. After the last write nothing of the old data is
    // left.
    const bool whole = old->kind() == Kind::kSelect && IsWholeChain(e, shape);
    return whole ? WithoutUnreached(pool_, e, shape) : e;
  }

  // Returns true if there are at least as many writes as places on an axis of small constant
  // extent, of which each write fills one place.
  bool IsWholeChain(Expr e, const Shape& shape) {
    int64_t writes = 0;
    for (; e->kind() == Kind::kSelect; ++writes) {
      const bool nested = e->args()[1]->kind() == Kind::kSelect;
      e = e->args()[nested ? 1 : 2];
    }
    for (size_t axis = 0; axis < places_.size(); ++axis) {
      const Expr n = shape[axis];
      if (n->kind() == Kind::kInteger && n->value() > 1 && n->value() <= writes &&
          places_[axis]->kind() == Kind::kInteger) {
        return true;
      }
    }
    return false;
  }

  void SplitUpdate() {
    for (size_t k = 0; k < update_shape_.size(); ++k) {
      const int axis = static_cast<int>(k);
      const Expr index = pool_.Index(kUpdateBase + axis);
      auto digits = DigitsOf(pool_, axis, update_shape_[k], index, places_);
      // An index that the places use as one digit may be a row and a column in the element of the
      // update.
      if (digits.size() > 1) {
        std::vector<Expr> readers = places_;
        readers.push_back(UpdateElement());
        const auto finer = DigitsOf(pool_, axis, update_shape_[k], index, readers);
        if (finer.size() > digits.size()) digits = finer;
      }
      update_digits_.insert(update_digits_.end(), digits.begin(), digits.end());
    }
    if (update_digits_.size() == update_shape_.size()) return;
    Pool::Substitution s;
    s.indices.assign(kUpdateBase, nullptr);
    for (size_t k = 0; k < update_shape_.size(); ++k) {
      s.indices.push_back(UpdateIndex(static_cast<int>(k)));
    }
    const Facts facts = UpdateFacts(Extents(update_digits_));
    for (Expr& place : places_) place = pool_.Substitute(place, s, facts);
  }

  // Returns the element of the update at i16.. on the axes that have places; 0 if it is not known.
  Expr UpdateElement() {
    std::vector<Expr> at;
    Shape extents(kUpdateBase, nullptr);
    for (int k = 0; k < c_.in(2).rank(); ++k) {
      const bool placed = k < std::ssize(update_shape_);
      at.push_back(pool_.Index(placed ? kUpdateBase + k : k));
      if (placed) extents.push_back(update_shape_[k]);
      if (!placed && k < kUpdateBase) extents[k] = c_.in(2).dim(k);
    }
    const Expr e = c_.engine().At(c_.in(2), at, Facts{extents});
    return e == nullptr ? pool_.Integer(0) : e;
  }

  // Returns the index of an update axis from its digits i16..
  Expr UpdateIndex(int axis) {
    const auto own = UpdateIndices(pool_, static_cast<int>(update_digits_.size()));
    return IndexFromDigits(pool_, update_digits_, axis, own);
  }

  // Appends the digits of a data axis and their places. An axis is split only if its place has
  // separate terms for the digits, too. Returns false if a place cannot be split.
  bool AddAxis(int axis, std::vector<Coordinate>* coordinates) {
    const Value& data = c_.in(0);
    const bool indexed = axis < static_cast<int>(places_.size());
    std::vector<Digit> digits{{axis, pool_.Integer(1), data.dim(axis)}};
    if (indexed) {
      digits = DigitsOf(pool_, axis, data.dim(axis), pool_.Index(axis), {&data.form.element, 1});
      if (digits.size() > 1) {
        const auto high = DivideTerms(pool_, places_[axis], digits[0].stride);
        if (!high || high->q->is_integer(0)) {
          digits = {{axis, pool_.Integer(1), data.dim(axis)}};
        }
      }
    }
    Expr rest = indexed ? places_[axis] : nullptr;
    for (const Digit& digit : digits) {
      data_digits_.push_back(digit);
      if (!indexed) continue;
      const auto split = DivideTerms(pool_, rest, digit.stride);
      if (!split) return false;
      const int number = static_cast<int>(data_digits_.size()) - 1;
      coordinates->push_back({number, split->q, digits.size() > 1});
      rest = split->rest;
    }
    return true;
  }

  // Returns the indices of the data from their digits i0..
  std::vector<Expr> DataIndices() {
    const auto own = AllIndices(pool_, static_cast<int>(data_digits_.size()));
    std::vector<Expr> result;
    result.reserve(static_cast<size_t>(c_.in(0).rank()));
    for (int axis = 0; axis < c_.in(0).rank(); ++axis) {
      result.push_back(IndexFromDigits(pool_, data_digits_, axis, own));
    }
    return result;
  }

  Expr UpdateAt(absl::Span<const Expr> data_index, const Shape& shape, const Inverse& inverse) {
    std::vector<Expr> at;
    for (size_t k = 0; k < update_shape_.size(); ++k)
      at.push_back(UpdateIndex(static_cast<int>(k)));
    at.insert(at.end(), data_index.end() - (c_.in(2).rank() - std::ssize(at)), data_index.end());
    Facts facts = UpdateFacts(Extents(update_digits_));
    std::copy(shape.begin(), shape.end(), facts.extents.begin());
    const Expr e = c_.engine().At(c_.in(2), at, facts);
    if (e == nullptr) return nullptr;
    Pool::Substitution s;
    s.indices.assign(kUpdateBase, nullptr);
    s.indices.insert(s.indices.end(), inverse.update_index.begin(), inverse.update_index.end());
    return pool_.Substitute(e, s, FactsOf(shape));
  }

  OpContext& c_;
  Pool& pool_;
  Shape update_shape_;
  std::vector<Expr> places_;
  std::vector<Digit> data_digits_, update_digits_;
};

// Sets the output of a scatter into a small vector at constant places. Returns false if it is not
// such a scatter.
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
  if (!c.Known(3) || !Overwrites(c) || data.rank() > kMaxScatterRank) {
    return c.SetOpaque(0, data.form.shape);
  }
  const Value& index = c.in(1);
  const Value& update = c.in(2);
  const int r = index.rank() - 1;
  if (r < 0 || r > kMaxScatterRank || index.dim(r)->kind() != Kind::kInteger) {
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
  std::vector<Expr> places;
  for (int64_t k = 0; k < width; ++k) {
    std::vector<Expr> at = UpdateIndices(pool, r);
    at.push_back(pool.Integer(k));
    const Expr place = c.engine().At(index, at, facts);
    if (place == nullptr) return c.SetOpaque(0, data.form.shape);
    places.push_back(place);
  }
  Scatter(c, std::move(batch), std::move(places)).Run();
}

void OpScatterElements(OpContext& c) {
  if (!c.Known(1)) return;
  const Value& data = c.in(0);
  const auto axis = NormalAxis(c.Int("axis", 0), data.rank());
  const bool usable = c.Known(3) && Overwrites(c) && axis && data.rank() <= kMaxScatterRank &&
                      c.in(1).rank() == data.rank() && c.in(2).rank() == data.rank();
  if (!usable) return c.SetOpaque(0, data.form.shape);
  if (data.rank() == 1 && SetVector(c)) return;
  Shape shape = c.in(2).form.shape;
  for (int k = 0; k < data.rank(); ++k) {
    shape[k] = c.Unify(shape[k], c.in(1).dim(k), "scattered axis");
  }
  std::vector<Expr> places;
  const std::vector<Expr> at = UpdateIndices(c.pool(), data.rank());
  for (int k = 0; k < data.rank(); ++k) {
    const Expr place = k == *axis ? c.engine().At(c.in(1), at, UpdateFacts(shape)) : at[k];
    if (place == nullptr) return c.SetOpaque(0, data.form.shape);
    places.push_back(place);
  }
  Scatter(c, std::move(shape), std::move(places)).Run();
}

void OpTensorScatter(OpContext& c) {
  if (!c.Known(1)) return;
  const Value& data = c.in(0);
  const auto axis = NormalAxis(c.Int("axis", -2), data.rank());
  const std::string mode = StringAttribute(c.proto(), "mode", "linear");
  const bool circular = mode == "circular", known_mode = circular || mode == "linear";
  if (!c.Known(2) || !axis || *axis == 0 || !known_mode || c.in(1).rank() != data.rank() ||
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
    if (circular) own[*axis] = pool.Mod(own[*axis], data.dim(*axis), facts);
    // This order of evaluation is the same with all compilers: conjunctions are sorted by the order
    // in which their operands were made.
    const Expr below = pool.Lt(own[*axis], update.dim(*axis), facts);
    const Expr inside = c.engine().And(pool.Le(pool.Integer(0), own[*axis], facts), below);
    const Expr fresh = c.engine().At(update, own, facts);
    const Expr old = c.engine().At(data, ix, facts);
    return fresh == nullptr || old == nullptr ? nullptr : c.engine().Select(inside, fresh, old);
  });
}

}  // namespace kvlift::sym::internal
