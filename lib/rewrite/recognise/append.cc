#include "rewrite/recognise/append.h"

#include <algorithm>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/container/flat_hash_set.h"
#include "rewrite/recognise/attention/match.h"
#include "rewrite/recognise/axis_letters.h"
#include "rewrite/recognise/written_region.h"

namespace kvlift {
namespace {

using sym::Expr;
using sym::Kind;

// A condition i_axis <= bound, i_axis >= bound or i_axis == bound; the bound does not contain
// i_axis.
struct Bound {
  enum class Kind { kNone, kUpper, kLower, kEqual } kind = Kind::kNone;
  int axis = -1;
  Expr bound = nullptr;
};

Bound ReadBound(sym::Pool& pool, Expr condition, int rank) {
  if (condition->kind() != Kind::kLe && condition->kind() != Kind::kEq) return {};
  const bool equal = condition->kind() == Kind::kEq;
  // If there are several indices, the highest one is that of the sequence; the others count batch
  // and heads.
  for (int axis = rank - 1; axis >= 0; --axis) {
    const auto linear = sym::LinearIn(pool, condition->args()[0], pool.Index(axis));
    if (!linear || (linear->coefficient != 1 && linear->coefficient != -1)) continue;
    const bool up = linear->coefficient == 1;
    const Expr bound = up ? pool.Neg(linear->rest) : linear->rest;
    return {equal ? Bound::Kind::kEqual : (up ? Bound::Kind::kUpper : Bound::Kind::kLower), axis,
            bound};
  }
  return {};
}

bool SameShape(const sym::Form& before, const sym::Form& after) {
  if (!before.known_rank || !after.known_rank || before.shape.size() != after.shape.size()) {
    return false;
  }
  for (size_t k = 0; k < before.shape.size(); ++k) {
    // Two symbols may stand for one size, which the graph needs to be equal where it joins tensors.
    const bool symbols =
        before.shape[k]->kind() == Kind::kDim && after.shape[k]->kind() == Kind::kDim;
    if (before.shape[k] != after.shape[k] && !symbols) return false;
  }
  return true;
}

// Returns the only axis k along which `e`, an element of the past, is read at a place x[i_k] of a
// vector x, and not at i_k. Returns -1 if every axis is read at its own index, if several axes are
// read elsewhere or one at any other place, and if `e` is no element of the past.
int ReorderedAxis(Expr e, ValueId past, const std::vector<Expr>& here) {
  if (e->kind() != Kind::kLoad || e->source() != past) return -1;
  int reordered = -1;
  for (size_t k = 0; k < here.size(); ++k) {
    const Expr arg = e->args()[k];
    if (arg == here[k]) continue;
    const bool gathered =
        arg->kind() == Kind::kLoad && arg->args().size() == 1 && arg->args()[0] == here[k];
    if (!gathered || reordered >= 0) return -1;
    reordered = static_cast<int>(k);
  }
  return reordered;
}

// The region of a present that is written, and the past's element elsewhere.
struct BufferRegion : WrittenRegion {
  Expr past = nullptr;
  bool reordered = false;  // `past` is taken in another order on an axis
};

// Reads the region of a present that has the past's shape; nullopt if it has another shape.
std::optional<BufferRegion> RegionOf(sym::Forms& forms, const CachePair& pair) {
  sym::Pool& pool = forms.pool();
  const sym::Form before = forms.Of(pair.past), after = forms.Of(pair.present);
  if (!SameShape(before, after)) return std::nullopt;
  const std::vector<Expr> here = Indices(pool, static_cast<int>(before.shape.size()));
  std::vector<Expr> pasts = {pool.Load(pair.past, here),
                             pool.Load(pair.past, Indices(pool, before.shape))};
  for (Expr load : sym::LoadsOf(after.element)) {
    if (ReorderedAxis(load, pair.past, here) >= 0) pasts.push_back(load);
  }
  for (Expr past : pasts) {
    auto region = ReadWrittenRegion(pool, after.element, past, before.shape);
    if (!region) continue;
    if (region->conditions.empty()) return std::nullopt;
    return BufferRegion{*std::move(region), past, ReorderedAxis(past, pair.past, here) >= 0};
  }
  return std::nullopt;
}

// Returns true if the slot of a new row is one for all places, or depends on the index of one axis.
bool TellsOneAxisApart(Expr start, int rank) {
  int axes = 0;
  for (int k = 0; k < rank; ++k) axes += sym::ContainsIndex(start, k) ? 1 : 0;
  return axes <= 1;
}

// The condition (i_axis - start) mod extent < length, where `extent` is that of the axis.
struct Wrap {
  Expr division = nullptr;  // (i_axis - start) div extent
  int axis = -1;
  Expr start = nullptr, length = nullptr;
};

std::optional<Wrap> ReadWrap(sym::Pool& pool, Expr condition, absl::Span<const Expr> shape) {
  if (condition->kind() != Kind::kLe) return std::nullopt;
  const Expr below = condition->args()[0];  // <= 0
  const int rank = static_cast<int>(shape.size());
  for (Expr division : sym::DivisionsOf(below)) {
    const Expr number = division->args()[0], extent = division->args()[1];
    for (int axis = rank - 1; axis > 0; --axis) {
      const auto linear = sym::LinearIn(pool, number, pool.Index(axis));
      if (extent != shape[axis] || !linear || linear->coefficient != 1) continue;
      const Expr slot = pool.Sub(number, pool.Mul(extent, division));
      const Expr length = pool.Add(pool.Sub(slot, below), pool.Integer(1));
      Wrap wrap = {division, axis, pool.Neg(linear->rest), length};
      bool told = !length->has_index() && sym::SourcesOf(length).empty();
      told = told && TellsOneAxisApart(wrap.start, rank);
      if (told) return wrap;
    }
  }
  return std::nullopt;
}

// Drops the branch of a select for the first index of an axis if the other branch is equal there:
// an index that is clamped to the axis chooses between the two.
Expr WithFirst(sym::Pool& pool, Expr e, int axis, const sym::Facts& facts) {
  if (e->kind() != Kind::kSelect) return e;
  const Expr condition = e->args()[0];
  const Expr then = WithFirst(pool, e->args()[1], axis, facts);
  const Expr otherwise = WithFirst(pool, e->args()[2], axis, facts);
  const Expr is_first = pool.Le(pool.Index(axis), pool.Integer(0), sym::Facts{});
  if (condition == is_first || condition == pool.Not(is_first)) {
    sym::Pool::Substitution first;
    first.indices.resize(static_cast<size_t>(axis) + 1, nullptr);
    first.indices.back() = pool.Integer(0);
    if (pool.Substitute(then, first, facts) == pool.Substitute(otherwise, first, facts)) {
      return condition == is_first ? otherwise : then;
    }
  }
  return pool.Select(condition, then, otherwise);
}

// Returns e with i_axis + shift in place of i_axis.
Expr Shifted(sym::Pool& pool, Expr e, int axis, Expr shift, std::vector<Expr> shape) {
  sym::Pool::Substitution s;
  s.indices.resize(shape.size(), nullptr);
  s.indices[axis] = pool.Add(pool.Index(axis), shift);
  const sym::Facts facts{std::move(shape)};
  const Expr some = pool.Le(pool.Integer(1), facts.extents[axis], sym::Facts{});
  return WithFirst(pool, pool.Assume(pool.Substitute(e, s, facts), some, true, facts), axis, facts);
}

// An element that is `first` where i_axis < end, and `second` elsewhere.
struct Split {
  int axis = -1;
  Expr end = nullptr, first = nullptr, second = nullptr;
};

std::optional<Split> ReadSplit(sym::Pool& pool, Expr e, int rank) {
  if (e->kind() != Kind::kSelect) return std::nullopt;
  const Bound bound = ReadBound(pool, e->args()[0], rank);
  const bool upper = bound.kind == Bound::Kind::kUpper;
  if (!upper && bound.kind != Bound::Kind::kLower) return std::nullopt;
  return Split{bound.axis, upper ? pool.Add(bound.bound, pool.Integer(1)) : bound.bound,
               e->args()[upper ? 1 : 2], e->args()[upper ? 2 : 1]};
}

// Reads one new row that is selected by its index: t == P ? new : (t < P ? past : anything), with
// t <= P.
std::optional<Split> ReadLastRow(sym::Pool& pool, Expr e, const sym::Form& before,
                                 const sym::Form& after) {
  const int rank = static_cast<int>(before.shape.size());
  if (e->kind() != Kind::kSelect) return std::nullopt;
  const Bound last = ReadBound(pool, e->args()[0], rank);
  if (last.kind != Bound::Kind::kEqual) return std::nullopt;
  const Expr length = before.shape[last.axis];
  if (last.bound != length || after.shape[last.axis] != pool.Add(length, pool.Integer(1))) {
    return std::nullopt;
  }
  Split split{last.axis, length, e->args()[2], e->args()[1]};
  const auto rest = ReadSplit(pool, split.first, rank);
  if (rest && rest->axis == last.axis && rest->end == length) split.first = rest->first;
  return split;
}

// Reads a region from bounds on the index of one axis, each of which says where it begins or ends.
std::optional<Write> ReadBounds(sym::Forms& forms, const CachePair& pair, BufferRegion region) {
  sym::Pool& pool = forms.pool();
  const sym::Form before = forms.Of(pair.past), after = forms.Of(pair.present);
  const int rank = static_cast<int>(before.shape.size());
  std::stable_sort(region.conditions.begin(), region.conditions.end(), [&](Expr a, Expr b) {
    return ReadBound(pool, a, rank).axis > ReadBound(pool, b, rank).axis;
  });
  Write write;
  Expr end = nullptr, part = pool.True();
  for (Expr condition : region.conditions) {
    const Bound bound = ReadBound(pool, condition, rank);
    if (bound.kind == Bound::Kind::kNone) return std::nullopt;
    // Conditions on the sequence axis come first; others select a part of the axes in front of it.
    if (write.axis >= 0 && bound.axis < write.axis) {
      part = pool.And(part, condition);
      continue;
    }
    if (write.axis >= 0 && bound.axis > write.axis) return std::nullopt;
    write.axis = bound.axis;
    const bool lower = bound.kind != Bound::Kind::kUpper;
    const bool upper = bound.kind != Bound::Kind::kLower;
    if ((lower && write.start != nullptr) || (upper && end != nullptr)) return std::nullopt;
    if (lower) write.start = bound.bound;
    if (upper) end = pool.Add(bound.bound, pool.Integer(1));
  }
  if (write.axis < 0) return std::nullopt;
  if (before.shape[write.axis] != after.shape[write.axis]) return std::nullopt;
  if (write.start == nullptr) write.start = pool.Integer(0);
  if (end == nullptr) end = before.shape[write.axis];
  write.length = pool.Sub(end, write.start);
  for (int k = 0; k < rank; ++k) {
    if (sym::ContainsIndex(write.length, k)) return std::nullopt;
  }
  if (!TellsOneAxisApart(write.start, rank)) return std::nullopt;
  if (!sym::SourcesOf(write.length).empty()) return std::nullopt;
  std::vector<Expr> shape = before.shape;
  shape[write.axis] = write.length;
  Expr rows = region.update;
  if (!part->is_integer(1)) {
    rows = pool.Select(part, rows, region.past);
    write.writes_some_sequences = true;
  }
  write.update = Shifted(pool, rows, write.axis, write.start, std::move(shape));
  return write;
}

// Returns a comparison inside e, without indices if possible; null if e compares nothing.
Expr SomeCondition(Expr e) {
  std::vector<Expr> open = {e};
  absl::flat_hash_set<Expr> seen = {e};
  Expr found = nullptr;
  while (!open.empty()) {
    const Expr next = open.back();
    open.pop_back();
    if (next->kind() == Kind::kLe || next->kind() == Kind::kEq) {
      if (!next->has_index()) return next;
      found = next;
    }
    std::vector<Expr> inner(next->args().begin(), next->args().end());
    for (const sym::Term& term : next->terms()) {
      inner.insert(inner.end(), term.atoms.begin(), term.atoms.end());
    }
    for (Expr x : inner) {
      if (x->has_condition() && seen.insert(x).second) open.push_back(x);
    }
  }
  return found;
}

// Returns true if two predicates are equal, by cases of the comparisons in them.
bool SameTruth(sym::Pool& pool, Expr a, Expr b, const sym::Facts& facts, int depth = 0) {
  constexpr int kMaxCases = 8;
  if (a == b) return true;
  Expr condition = SomeCondition(a);
  if (condition == nullptr || condition->has_index()) {
    const Expr other = SomeCondition(b);
    if (other != nullptr && (condition == nullptr || !other->has_index())) condition = other;
  }
  if (condition == nullptr || depth == kMaxCases) return false;
  for (const bool truth : {true, false}) {
    sym::Pool::Substitution s;
    s.atoms[condition] = pool.Integer(truth ? 1 : 0);
    s.atoms[pool.Not(condition)] = pool.Integer(truth ? 0 : 1);
    const auto under = [&](Expr e) {
      return pool.Assume(pool.Substitute(e, s, facts), condition, truth, facts);
    };
    if (!SameTruth(pool, under(a), under(b), facts, depth + 1)) return false;
  }
  return true;
}

// Reads a region as all of start <= i_axis < start + length, however the graph says that. Returns
// nullopt if it is another region.
std::optional<Write> ReadPlace(sym::Forms& forms, const CachePair& pair,
                               const WrittenRegion& region, int axis, Expr start, Expr length) {
  sym::Pool& pool = forms.pool();
  std::vector<Expr> shape = forms.Of(pair.past).shape;
  const int rank = static_cast<int>(shape.size());
  if (!TellsOneAxisApart(start, rank) || sym::ContainsIndex(start, axis)) return std::nullopt;
  Expr inside = pool.True();
  for (Expr condition : region.conditions) inside = pool.And(inside, condition);
  const sym::Facts facts{shape};
  const Expr own = pool.Sub(pool.Index(axis), start);
  const Expr all = pool.And(pool.Le(pool.Integer(0), own, facts), pool.Lt(own, length, facts));
  if (all->is_integer(1) || !SameTruth(pool, inside, all, facts)) return std::nullopt;
  Write write;
  write.axis = axis;
  write.start = start;
  write.length = length;
  shape[axis] = length;
  write.update = Shifted(pool, region.update, axis, start, std::move(shape));
  return write;
}

// Reads a region from the place of its rows: the update is read at i_axis - w. A slot w that is
// clamped to the buffer makes comparisons of its own, besides those with the index. A single row is
// read at 0; its slot is a bound of the index.
std::optional<Write> ReadPlaceOfRows(sym::Forms& forms, const CachePair& pair,
                                     const WrittenRegion& region) {
  sym::Pool& pool = forms.pool();
  const int rank = static_cast<int>(forms.Of(pair.past).shape.size());
  for (Expr load : sym::LoadsOf(region.update)) {
    const sym::Form& rows = forms.Of(load->source());
    for (size_t k = 0; k < load->args().size() && k < rows.shape.size(); ++k) {
      for (int axis = rank - 1; axis >= 0; --axis) {
        const auto linear = sym::LinearIn(pool, load->args()[k], pool.Index(axis));
        if (!linear || linear->coefficient != 1) continue;
        auto write = ReadPlace(forms, pair, region, axis, pool.Neg(linear->rest), rows.shape[k]);
        if (write) return write;
      }
    }
  }
  for (Expr condition : region.conditions) {
    const Bound end = ReadBound(pool, condition, rank);
    if (end.kind != Bound::Kind::kUpper && end.kind != Bound::Kind::kLower) continue;
    auto write = ReadPlace(forms, pair, region, end.axis, end.bound, pool.Integer(1));
    if (write) return write;
  }
  return std::nullopt;
}

// Returns the names of sizes that graph inputs declare, and the past does not: one of them may be
// the number of new rows.
std::vector<sym::DimSymbol> SizesBesides(sym::Forms& forms, const sym::Form& past) {
  std::vector<sym::DimSymbol> sizes;
  for (const ValueId input : forms.graph().graph_inputs()) {
    for (const Expr extent : forms.Of(input).shape) {
      for (const sym::DimSymbol& size : sym::DimsOf(extent)) {
        const bool of_past =
            absl::c_any_of(past.shape, [&](Expr e) { return sym::ContainsDim(e, size); });
        if (!of_past && !absl::c_linear_search(sizes, size)) sizes.push_back(size);
      }
    }
  }
  return sizes;
}

}  // namespace

std::optional<Append> ReadAppend(sym::Forms& forms, ValueId past, ValueId v) {
  sym::Pool& pool = forms.pool();
  const sym::Form before = forms.Of(past), after = forms.Of(v);
  if (!before.known_rank || !after.known_rank || before.shape.size() != after.shape.size()) {
    return std::nullopt;
  }
  const int rank = static_cast<int>(before.shape.size());
  auto split = ReadLastRow(pool, after.element, before, after);
  if (!split) split = ReadSplit(pool, after.element, rank);
  if (!split || split->end->has_index()) return std::nullopt;
  const int axis = split->axis;
  const Expr end = split->end, first = split->first, second = split->second;
  const std::vector<Expr> here = Indices(pool, rank);
  std::vector<Expr> moved = here;
  moved[axis] = pool.Sub(here[axis], end);
  Append append;
  append.axis = axis;
  append.length = end;
  const Expr length = before.shape[axis];
  append.reversed = end != length && second == pool.Load(past, moved);
  if (append.reversed) {
    append.update = first;
    return append;
  }
  // Axes of extent 1 may be read at 0.
  const auto own = [&](Expr e) {
    return e == pool.Load(past, here) || e == pool.Load(past, Indices(pool, before.shape));
  };
  if (end != length) return std::nullopt;
  if (!own(first)) {
    if (ReorderedAxis(first, past, here) < 0) return std::nullopt;
    append.reordered_past = first;
  }
  std::vector<Expr> shape = before.shape;
  shape[axis] = pool.Sub(after.shape[axis], length);
  append.update = Shifted(pool, second, axis, end, std::move(shape));
  return append;
}

std::optional<Write> ReadWrite(sym::Forms& forms, const CachePair& pair) {
  const auto region = RegionOf(forms, pair);
  if (!region) return std::nullopt;
  auto write = ReadBounds(forms, pair, *region);
  if (!write) write = ReadPlaceOfRows(forms, pair, *region);
  if (write && region->reordered) write->reordered_past = region->past;
  return write;
}

std::vector<TokensThatFit> TokensThatMayFit(sym::Forms& forms, const CachePair& pair) {
  const sym::Form before = forms.Of(pair.past), after = forms.Of(pair.present);
  if (!before.known_rank || !after.known_rank || before.shape.size() != after.shape.size()) {
    return {};
  }
  std::vector<Expr> slots;
  for (size_t k = 0; k < before.shape.size(); ++k) {
    const Expr extent = before.shape[k];
    const bool number = extent->kind() == Kind::kInteger;
    if (!number && after.shape[k] != extent) return {};  // the cache grows
    if (number && !absl::c_linear_search(slots, extent)) slots.push_back(extent);
  }
  if (ReadWrite(forms, pair)) return {};
  std::vector<TokensThatFit> found;
  for (const sym::DimSymbol& tokens : SizesBesides(forms, before)) {
    for (const Expr number : slots) found.push_back({tokens, number->value()});
  }
  return found;
}

std::optional<Write> ReadRing(sym::Forms& forms, const CachePair& pair) {
  sym::Pool& pool = forms.pool();
  const auto region = RegionOf(forms, pair);
  if (!region || region->reordered || region->conditions.size() != 1) return std::nullopt;
  std::vector<Expr> shape = forms.Of(pair.past).shape;
  const auto wrap = ReadWrap(pool, region->conditions[0], shape);
  if (!wrap) return std::nullopt;
  Write write;
  write.axis = wrap->axis;
  write.start = wrap->start;
  write.length = wrap->length;
  // Row s of the update is the element at slot start + s, where nothing has wrapped around.
  sym::Pool::Substitution s;
  s.indices.resize(shape.size(), nullptr);
  s.indices[wrap->axis] = pool.Add(pool.Index(wrap->axis), wrap->start);
  s.atoms[wrap->division] = pool.Integer(0);
  shape[wrap->axis] = wrap->length;
  write.update = pool.Substitute(region->update, s, sym::Facts{shape});
  return write;
}

std::optional<Write> ReadShift(sym::Forms& forms, const CachePair& pair) {
  sym::Pool& pool = forms.pool();
  const sym::Form before = forms.Of(pair.past), after = forms.Of(pair.present);
  if (!SameShape(before, after)) return std::nullopt;
  const int rank = static_cast<int>(before.shape.size());
  const auto split = ReadSplit(pool, after.element, rank);
  if (!split || split->axis <= 0 || split->end->has_index()) return std::nullopt;
  Write write;
  write.axis = split->axis;
  write.length = pool.Sub(before.shape[split->axis], split->end);
  std::vector<Expr> moved = Indices(pool, rank), shape = before.shape;
  moved[split->axis] = pool.Add(moved[split->axis], write.length);
  if (split->first != pool.Load(pair.past, moved)) return std::nullopt;
  if (!sym::SourcesOf(write.length).empty()) return std::nullopt;
  shape[split->axis] = write.length;
  write.update = Shifted(pool, split->second, split->axis, split->end, std::move(shape));
  return write;
}

bool ReordersSequencesOnly(sym::Pool& pool, const CacheUpdate& update) {
  if (update.reordered_past == nullptr) return true;
  const int rank = static_cast<int>(update.layout.size());
  const int axis = ReorderedAxis(update.reordered_past, update.pair.past, Indices(pool, rank));
  return axis >= 0 && update.layout[static_cast<size_t>(axis)] == 'B';
}

std::optional<CacheUpdate> BufferUpdate(sym::Forms& forms, const CachePair& pair,
                                        const Write& write, CacheUpdate::How how) {
  CacheUpdate update(pair, how);
  update.axis = write.axis;
  update.layout = LayoutOfRows(forms, pair, write.axis, write.update);
  if (update.layout.empty()) return std::nullopt;
  for (size_t k = 0; write.start != nullptr && k < update.layout.size(); ++k) {
    const bool varies = sym::ContainsIndex(write.start, static_cast<int>(k));
    if (varies && update.layout[k] != 'B') return std::nullopt;
  }
  update.new_length = write.length;
  if (CountsSequences(forms, update)) return std::nullopt;
  update.node = forms.graph().producer(pair.present);
  update.update_element = write.update;
  update.reordered_past = write.reordered_past;
  if (!ReordersSequencesOnly(forms.pool(), update)) return std::nullopt;
  std::vector<Expr> shape = forms.Of(pair.past).shape;
  shape[write.axis] = write.length;
  update.update = FindValue(forms, pair.present, update.update_element, shape, std::nullopt,
                            forms.ElementType(pair.past));
  return update;
}

}  // namespace kvlift
