#include "proof/correspondence.h"

#include <algorithm>
#include <cstdlib>
#include <set>
#include <utility>

#include "contract/positions.h"
#include "fmt/format.h"
#include "proof/rings.h"
#include "proof/shifts.h"
#include "proof/windows.h"
#include "sym/broadcast.h"

namespace kvlift {

using sym::Expr;
using sym::Facts;
using sym::Kind;

namespace {

constexpr char kPast[] = "P of the sequence";
constexpr char kLeft[] = "rows that have left";

// e with its comparisons taken as true in its other conjuncts: p and (q or (p and r)) is p and
// (q or r).
Expr Absorbed(sym::Pool& pool, Expr e, const Facts& facts) {
  if (e->kind() != Kind::kAnd) return e;
  const std::vector<Expr> all = sym::ConjunctsOf(e);
  Expr kept = pool.True();
  for (Expr part : all) {
    if (part->kind() != Kind::kNot) {
      kept = pool.And(kept, part);
      continue;
    }
    Expr any = pool.False();
    for (Expr inner : sym::ConjunctsOf(part->args()[0])) {
      Expr one = pool.Not(inner);
      for (Expr known : all) {
        if (known->kind() == Kind::kLe) one = pool.Assume(one, known, true, facts);
      }
      any = pool.Or(any, one);
    }
    kept = pool.And(kept, any);
  }
  return kept;
}

}  // namespace

Correspondence::Correspondence(const GraphPair& pair, const Manifest& relation,
                               const std::vector<LengthClaim>& claims, const SourceCase& steps)
    : pair_(pair), forms_(pair.forms()), uniform_(relation.uniform) {
  for (const ManifestInput& input : relation.inputs) {
    const ValueId after = pair.After(input.name);
    if (after == kNoValue) continue;
    if (input.as == "control") controls_[after] = input.value;
    has_tree_ = has_tree_ || (input.as == "control" && input.value == kLowerTriangle);
    if (input.as == "pad_to_capacity") twins_[after] = pair.Before(input.name);
  }
  for (const ManifestCache& cache : relation.caches) AddPast(cache);
  one_ = !relation.caches.empty() &&
         std::all_of(relation.caches.begin(), relation.caches.end(),
                     [&](const ManifestCache& cache) { return HasOneSequence(cache); });
  for (const DroppedInput& dropped : relation.dropped) {
    const ValueId value = pair.Before(dropped.name);
    if (value != kNoValue && dropped.requires_text == "P..T-1") positions_.insert(value);
  }
  if (!FindShifts(relation)) FindLengths(relation, steps);
  FindRings(relation);
  FindEqualExtents(claims);
}

void Correspondence::AddPast(const ManifestCache& cache) {
  Past past;
  past.before = pair_.Before(cache.source.input);
  const ValueId after = pair_.After(cache.input);
  if (past.before == kNoValue || after == kNoValue) return;
  past.sequence = static_cast<size_t>(cache.source.axis);
  past.known = !cache.ring.has_value() && cache.layout.find('(') == std::string::npos;
  const size_t rank = cache.source.layout.size() + cache.source.select.size();
  size_t letter = 0;
  for (size_t axis = 0; axis < rank; ++axis) {
    const auto fixed =
        std::find_if(cache.source.select.begin(), cache.source.select.end(),
                     [&](const Select& s) { return s.axis == static_cast<int64_t>(axis); });
    if (fixed != cache.source.select.end()) {
      past.axes.push_back(-1);
      past.selected.push_back(fixed->index);
      continue;
    }
    past.axes.push_back(static_cast<int>(cache.layout.find(cache.source.layout[letter++])));
    past.selected.push_back(0);
  }
  pasts_[after] = std::move(past);
}

bool Correspondence::HasOneSequence(const ManifestCache& cache) const {
  const ValueId past = pair_.After(cache.input);
  if (past == kNoValue) return false;
  const sym::Form form = forms_.Of(past);
  const size_t axis = cache.layout.find('B');
  return form.known_rank && axis < form.shape.size() && form.shape[axis]->is_integer(1);
}

void Correspondence::FindLengths(const Manifest& relation, const SourceCase& steps) {
  sym::Pool& pool = forms_.pool();
  const bool none = steps.past == SourceCase::Past::kNone;
  if (steps.window != SourceCase::Window::kNone) FindWindows(relation, steps);
  const Expr in_windows = past_;
  for (const ManifestCache& cache : relation.caches) {
    if (!cache.source.growing || cache.source.kind == "window") continue;
    const ValueId past = pair_.Before(cache.source.input);
    const ValueId present = pair_.Before(cache.source.output);
    if (past == kNoValue || present == kNoValue) continue;
    const sym::Form before = forms_.Of(past), later = forms_.Of(present);
    const auto axis = static_cast<size_t>(cache.source.axis);
    if (!before.known_rank || !later.known_rank || axis >= before.shape.size() ||
        later.shape.size() != before.shape.size() || before.shape[axis]->kind() != Kind::kDim) {
      continue;
    }
    if (in_windows == nullptr) {
      past_ = none ? pool.Integer(0)
                   : pool.Internal(kPast, steps.past == SourceCase::Past::kSome ? 1 : 0);
    }
    sizes_[before.shape[axis]->dim()] = past_;
    const Expr added =
        Normal(pool.Sub(later.shape[axis], none ? past_ : before.shape[axis]), Facts{});
    if (new_ == nullptr || added->size() < new_->size()) new_ = added;
  }
  if (steps.one_token && new_ != nullptr && new_->kind() == Kind::kDim) {
    sizes_[new_->dim()] = pool.Integer(1);
    new_ = pool.Integer(1);
  }
}

// While the windows fill, all P rows are there, W at most. Once they are full, they hold the last W
// of more.
void Correspondence::FindWindows(const Manifest& relation, const SourceCase& steps) {
  sym::Pool& pool = forms_.pool();
  std::vector<std::pair<const ManifestCache*, WindowOfRows>> windows;
  std::set<int64_t> sizes;
  for (const ManifestCache& cache : relation.caches) {
    if (cache.ring) sizes.insert(cache.ring->window);
    if (cache.source.kind != "window") continue;
    const auto window = ReadWindow(pair_, cache);
    if (!window) return;
    sizes.insert(window->rows);
    windows.emplace_back(&cache, *window);
  }
  if (sizes.size() != 1) return;
  const Expr size = pool.Integer(*sizes.begin());
  const bool full = steps.window == SourceCase::Window::kFull;
  left_ = full ? pool.Internal(kLeft, 1) : pool.Integer(0);
  past_ = full ? pool.Add(size, left_) : pool.Internal(kPast);
  if (!full) pool.Bound(sym::DimSymbol::Internal(kPast), size);
  for (const auto& [cache, window] : windows) {
    if (full) pasts_[pair_.After(cache->input)].left = left_;
    sizes_[window.past->dim()] = full ? size : past_;
    new_ = pool.Sub(window.total, window.past);
    if (new_->kind() == Kind::kDim) pool.Dim(new_->dim(), 1);  // a step has a token
  }
}

// P counts on where rows move: of the M slots M - S keep theirs.
bool Correspondence::FindShifts(const Manifest& relation) {
  sym::Pool& pool = forms_.pool();
  std::optional<ShiftOfRows> shift;
  std::vector<ValueId> moved;
  for (const ManifestCache& cache : relation.caches) {
    if (cache.source.growing || cache.source.kind == "window") return false;
    if (cache.source.kind != "shift") continue;
    const auto own = ReadShiftOfRows(pair_, cache);
    const ValueId past = pair_.After(cache.input);
    if (!own || !pasts_.contains(past)) return false;
    if (shift && (shift->slots != own->slots || shift->tokens != own->tokens)) return false;
    shift = own;
    moved.push_back(past);
  }
  if (!shift) return false;
  past_ = pool.Internal(kPast);
  new_ = shift->tokens;
  if (new_->kind() == Kind::kDim) pool.Bound(new_->dim(), shift->slots);
  for (ValueId past : moved) {
    pasts_[past].turn = Turn{shift->slots, past_};
    pasts_[past].moved = RegionsOf(pool, *shift, past_);
  }
  return true;
}

// Slots of a ring hold what is in the window; of others nothing is known.
void Correspondence::FindRings(const Manifest& relation) {
  if (past_ == nullptr || new_ == nullptr || left_ == nullptr) return;
  sym::Pool& pool = forms_.pool();
  for (const ManifestCache& cache : relation.caches) {
    const auto past = pasts_.find(pair_.After(cache.input));
    const auto ring = ReadRing(pair_, cache);
    if (!ring || past == pasts_.end() || !HoldsStep(pool, *ring, new_)) continue;
    if (HoldsOneToken(pool, *ring) && new_->kind() == Kind::kDim) {
      sizes_[new_->dim()] = pool.Integer(1);
      new_ = pool.Integer(1);
    }
    past->second.moved = RegionsOf(pool, *ring, past_, left_, new_);
    past->second.known = true;
    past->second.left = nullptr;
    past->second.first = past->second.moved[0].first();
    past->second.held = pool.Sub(past_, left_);
    past->second.turn = Turn{ring->slots, pool.Sub(left_, past->second.first)};
  }
}

const std::vector<MovedRows>* Correspondence::MovedOf(ValueId after_past) const {
  const auto past = pasts_.find(after_past);
  return past == pasts_.end() || past->second.moved.empty() ? nullptr : &past->second.moved;
}

const std::vector<MovedRows>* Correspondence::MovedIn(Expr e) const {
  for (ValueId source : sym::SourcesOf(e)) {
    if (const auto* moved = MovedOf(source); moved != nullptr) return moved;
  }
  return nullptr;
}

// Sizes that the source's operators take only if they are equal: T of a mask, added to scores of
// P + S keys.
void Correspondence::FindEqualExtents(const std::vector<LengthClaim>& claims) {
  if (past_ == nullptr || new_ == nullptr) return;
  for (NodeId n = 0; n < pair_.graph().num_nodes(); ++n) {
    for (ValueId output : pair_.graph().outputs(n)) {
      if (output != kNoValue && !pair_.IsOfAfter(n)) forms_.Of(output);
    }
  }
  for (const sym::Assumption& assumption : forms_.assumptions()) {
    if (pair_.IsOfAfter(assumption.node) || assumption.predicate->kind() != Kind::kEq) continue;
    MakeZero(Normal(assumption.predicate->args()[0], Facts{}));
  }
  for (const LengthClaim& claim : claims) MakeZero(Beyond(claim));
}

void Correspondence::MakeZero(Expr difference) {
  sym::Pool& pool = forms_.pool();
  if (difference == nullptr || !sym::LoadsOf(difference).empty()) return;
  for (const sym::DimSymbol& name : sym::DimsOf(difference)) {
    if (name == sym::DimSymbol::Internal(kPast) || name == sym::DimSymbol::Internal(kLeft) ||
        sym::ContainsDim(new_, name)) {
      continue;
    }
    const auto linear = sym::LinearIn(pool, difference, pool.Dim(name));
    if (!linear || std::abs(linear->coefficient) != 1) continue;
    sizes_[name] = linear->coefficient == 1 ? pool.Neg(linear->rest) : linear->rest;
    return;
  }
}

Expr Correspondence::Beyond(const LengthClaim& claim) const {
  sym::Pool& pool = forms_.pool();
  const auto form = [&](const std::string& name) {
    const ValueId value = pair_.Before(name);
    return value == kNoValue ? sym::Form{} : forms_.Of(value);
  };
  const sym::Form lengths = form(claim.value), past = form(claim.past),
                  queries = form(claim.queries);
  if (!lengths.known_rank || !past.known_rank || !queries.known_rank || past.shape.size() != 4 ||
      queries.shape.size() < 2) {
    return nullptr;
  }
  const Expr total = pool.Add(past.shape[2], queries.shape[1]);
  const Expr claimed = pool.Sub(total, pool.Integer(claim.less));
  return Normal(pool.Sub(lengths.element, claimed), Facts{lengths.shape});
}

void Correspondence::SetTwin(ValueId after, ValueId before, bool doubted) {
  twins_[after] = before;
  const sym::Form mine = forms_.Of(after), theirs = forms_.Of(before);
  const bool comparable =
      !doubted && mine.known_rank && theirs.known_rank && mine.shape.size() == theirs.shape.size();
  for (size_t k = 0; comparable && k < mine.shape.size(); ++k) {
    // A size that no form tells is named by its value.
    if (mine.shape[k]->kind() != Kind::kDim) continue;
    const sym::DimSymbol& name = mine.shape[k]->dim();
    if (name == forms_.OwnSymbol(after, static_cast<int>(k))) sizes_[name] = theirs.shape[k];
  }
  if (doubted) doubted_.insert(after);
}

void Correspondence::SetStackedTwin(ValueId after, ValueId before, int64_t groups, Expr tokens,
                                    bool doubted) {
  SetTwin(after, before, doubted);
  stacked_[after] = {groups, tokens};
}

void Correspondence::SetFoldedTwin(ValueId after, ValueId before, int64_t heads, bool doubted) {
  SetTwin(after, before, doubted);
  folded_[after] = heads;
}

void Correspondence::SetJoinedTwin(ValueId after, ValueId before, Expr size, bool doubted) {
  SetTwin(after, before, doubted);
  joined_[after] = size;
}

bool Correspondence::TakeDoubt() const { return std::exchange(doubt_, false); }

bool Correspondence::IsTwin(ValueId after, ValueId before) const {
  const auto it = twins_.find(after);
  if (it == twins_.end() || it->second != before || folded_.contains(after) ||
      stacked_.contains(after) || joined_.contains(after)) {
    return false;
  }
  doubt_ = doubt_ || doubted_.contains(after);
  return true;
}

ValueId Correspondence::TwinOf(ValueId value) const {
  if (const auto it = twins_.find(value); it != twins_.end()) return it->second;
  const NodeId n = pair_.graph().producer(value);
  const bool own =
      n != kNoNode ? pair_.IsOfAfter(n) : pair_.graph().name(value) != pair_.NameOf(value);
  return own ? kNoValue : value;
}

Expr Correspondence::Normal(Expr e, const Facts& facts) const {
  if (e == nullptr) return nullptr;
  sym::Pool::Substitution s;
  s.dims = sizes_;
  if (past_ != nullptr && !positions_.empty()) {
    for (Expr load : sym::LoadsOf(e)) {
      if (!positions_.contains(load->source()) || load->args().empty()) continue;
      s.atoms[load] = forms_.pool().Add(past_, load->args().back());
    }
  }
  return forms_.pool().Substitute(e, s, facts);
}

std::vector<Expr> Correspondence::SourcePlace(ValueId after_past, absl::Span<const Expr> at) const {
  const auto found = pasts_.find(after_past);
  if (found == pasts_.end()) return {};
  const Past& past = found->second;
  std::vector<Expr> place;
  for (size_t k = 0; k < past.axes.size(); ++k) {
    const int axis = past.axes[k];
    if (axis >= static_cast<int>(at.size())) return {};
    place.push_back(axis < 0 ? forms_.pool().Integer(past.selected[k]) : at[axis]);
  }
  return place;
}

// Of a turned buffer the row that the slot has; what is not held stays the conversion's own.
Expr Correspondence::PastRow(const Past& past, ValueId source, absl::Span<const Expr> args,
                             const Facts& facts) const {
  if (!past.known) return nullptr;
  sym::Pool& pool = forms_.pool();
  std::vector<Expr> place = SourcePlace(source, args);
  if (past.sequence >= place.size()) return nullptr;
  Expr& row = place[past.sequence];
  if (past.left != nullptr) row = pool.Sub(row, past.left);
  if (!past.turn) return pool.Load(past.before, place);
  const Expr first = past.first == nullptr ? pool.Integer(0) : past.first;
  const Expr behind = pool.Sub(row, pool.Add(past.turn->turn, first));
  const Expr number = pool.Mod(behind, past.turn->slots, facts);
  row = pool.Add(first, number);
  const Expr load = pool.Load(past.before, place);
  if (past.held == nullptr) return load;
  return pool.Select(pool.Lt(number, past.held, facts), load, pool.Load(source, args));
}

Expr Correspondence::TranslateLoad(Expr load, Expr batch, const Facts& facts) const {
  sym::Pool& pool = forms_.pool();
  const ValueId source = load->source();
  std::vector<Expr> args;
  for (Expr arg : load->args()) {
    args.push_back(Translate(arg, batch, facts));
    if (args.back() == nullptr) return nullptr;
  }
  if (const auto it = controls_.find(source); it != controls_.end()) {
    if (it->second == kPositionsOfTokens) {
      const bool own = args.size() == 1 || (args.size() == 2 && args[0] == batch);
      return own && past_ != nullptr ? pool.Add(past_, args.back()) : nullptr;
    }
    if (it->second == kLowerTriangle) {
      return args.size() == 4 ? pool.Le(args[3], args[2], facts) : nullptr;
    }
    const bool own =
        args.size() == 1 && (uniform_ || args[0] == batch || (one_ && args[0]->is_integer(0)));
    if (!own || past_ == nullptr) return nullptr;
    return it->second == "T" ? total() : past_;
  }
  if (const auto it = pasts_.find(source); it != pasts_.end()) {
    return PastRow(it->second, source, args, facts);
  }
  if (const auto it = twins_.find(source); it != twins_.end()) {
    doubt_ = doubt_ || doubted_.contains(source);
    if (const auto heads = folded_.find(source); heads != folded_.end() && args.size() == 4) {
      args[1] = pool.Add(pool.Mul(args[0], pool.Integer(heads->second)), args[1]);
      args.erase(args.begin());
    }
    if (const auto join = joined_.find(source); join != joined_.end()) {
      const Expr size = join->second;
      if (args.size() == 4) {
        args = {args[0], args[2], pool.Add(pool.Mul(args[1], size), args[3])};
      } else {
        const Expr head = pool.FloorDiv(args[2], size, facts);
        args = {args[0], head, args[1], pool.Sub(args[2], pool.Mul(head, size))};
      }
    }
    if (const auto stack = stacked_.find(source); stack != stacked_.end() && args.size() == 4) {
      const auto& [groups, tokens] = stack->second;
      const Expr g = pool.FloorDiv(args[2], tokens, facts);
      args[1] = pool.Add(pool.Mul(args[1], pool.Integer(groups)), g);
      args[2] = pool.Sub(args[2], pool.Mul(g, tokens));
    }
    return Normal(sym::BroadcastAt(forms_, it->second, args, Facts{}), Facts{});
  }
  const NodeId producer = pair_.graph().producer(source);
  if (const Expr one = OneForAll(producer, batch, facts); one != nullptr) return one;
  if (const Expr row = RowOfTable(producer, load->args(), batch, facts); row != nullptr) return row;
  const bool own = producer != kNoNode ? pair_.IsOfAfter(producer)
                                       : pair_.graph().name(source) != pair_.NameOf(source);
  return own ? nullptr : pool.Load(source, args);
}

// The largest or smallest of numbers that are all one: lengths, where there is one for all
// sequences.
Expr Correspondence::OneForAll(NodeId n, Expr batch, const Facts& facts) const {
  const Graph& graph = pair_.graph();
  if (!uniform_ || n == kNoNode || !pair_.IsOfAfter(n)) return nullptr;
  if (!graph.Is(n, "ReduceMax") && !graph.Is(n, "ReduceMin")) return nullptr;
  const ValueId input = graph.inputs(n)[0];
  const sym::Form form = forms_.Of(input);
  if (!form.known_rank || form.shape.size() > 1) return nullptr;
  const Expr e = Translate(form.element, batch, facts);
  if (e == nullptr) return nullptr;
  for (Expr load : sym::OuterLoadsOf(e)) {
    if (load != nullptr) return nullptr;
  }
  sym::Pool::Substitution shift;
  shift.indices = {forms_.pool().Integer(1)};
  return forms_.pool().Substitute(e, shift, Facts{}) == e ? e : nullptr;
}

// What a Gather reads at an index that is not negative once it is translated: a graph does not say
// that its write indices are not.
Expr Correspondence::RowOfTable(NodeId n, absl::Span<const Expr> args, Expr batch,
                                const Facts& facts) const {
  const Graph& graph = pair_.graph();
  if (n == kNoNode || !pair_.IsOfAfter(n) || !graph.Is(n, "Gather")) return nullptr;
  const ValueId table = graph.inputs(n)[0], indices = graph.inputs(n)[1];
  const sym::Form rows = forms_.Of(table), which = forms_.Of(indices);
  if (!rows.known_rank || !which.known_rank) return nullptr;
  const auto rank = static_cast<int64_t>(rows.shape.size());
  int64_t axis = IntAttribute(graph.node(n), "axis", 0);
  if (axis < 0) axis += rank;
  const size_t count = which.shape.size();
  const auto front = static_cast<size_t>(axis);
  if (axis < 0 || axis >= rank || args.size() + 1 != rows.shape.size() + count) return nullptr;
  const Expr row = Translate(forms_.At(indices, args.subspan(front, count), facts), batch, facts);
  if (row == nullptr || !forms_.pool().ProveNonNegative(row, facts)) return nullptr;
  std::vector<Expr> place(args.begin(), args.begin() + axis);
  place.push_back(forms_.At(indices, args.subspan(front, count), facts));
  place.insert(place.end(), args.begin() + axis + static_cast<std::ptrdiff_t>(count), args.end());
  return Translate(forms_.At(table, place, facts), batch, facts);
}

Expr Correspondence::Translate(Expr e, Expr batch, const Facts& facts) const {
  if (e == nullptr) return nullptr;
  sym::Pool::Substitution s;
  s.dims = sizes_;
  for (Expr load : sym::OuterLoadsOf(e)) {
    const Expr theirs = TranslateLoad(load, batch, facts);
    if (theirs == nullptr) return nullptr;
    s.atoms[load] = theirs;
  }
  const Expr translated = forms_.pool().Substitute(e, s, facts);
  return has_tree_ ? Absorbed(forms_.pool(), translated, facts) : translated;
}

Expr Correspondence::Extent(Expr e, Expr batch) const {
  sym::Pool& pool = forms_.pool();
  const Expr extent = Translate(e, batch, Facts{});
  // What is cut at a sum of lengths is that long: they are not negative.
  if (extent == nullptr || extent->kind() != Kind::kSelect) return extent;
  const Expr x = extent->args()[2];
  const bool clamped =
      extent->args()[1]->is_integer(0) &&
      extent->args()[0] == pool.Le(x, pool.Integer(0), Facts{}) &&
      pool.Prove(pool.Le(pool.Integer(0), x, Facts{}), Facts{}) == sym::Truth::kYes;
  return clamped ? x : extent;
}

}  // namespace kvlift
