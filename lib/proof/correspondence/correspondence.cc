#include "proof/correspondence/correspondence.h"

#include <algorithm>
#include <set>
#include <utility>

#include "fmt/format.h"
#include "proof/rows/rings.h"
#include "proof/rows/shifts.h"
#include "proof/rows/windows.h"
#include "sym/forms/keeps_value.h"

namespace kvlift {

using sym::Expr;
using sym::Facts;
using sym::Kind;

namespace {

// Returns the forms of the pair, with a bound for pasts that keep a window: they have no more rows
// than a present, which a step before has returned. The bound changes forms, so it comes first, and
// the windows are read from forms without it.
sym::Forms& WithBoundedPasts(const GraphPair& pair, const Manifest& relation,
                             const SourceCase& steps) {
  sym::Forms& forms = pair.forms();
  if (steps.window == SourceCase::Window::kNone) return forms;
  sym::Forms unbounded(pair.graph());
  for (const ManifestCache& cache : relation.caches) {
    if (cache.source.kind != UpdateKind::kWindow) continue;
    if (const auto window = ReadWindow(pair, cache, unbounded)) {
      forms.pool().Bound(window->past->dim(), forms.pool().Integer(window->rows));
    }
  }
  return forms;
}

}  // namespace

Correspondence::Correspondence(const GraphPair& pair, const Manifest& relation,
                               const std::vector<LengthClaim>& claims, const SourceCase& steps)
    : pair_(pair),
      forms_(WithBoundedPasts(pair, relation, steps)),
      repeated_(pair),
      uniform_(relation.uniform) {
  for (const ManifestInput& input : relation.inputs) {
    const ValueId after = pair.After(input.name), before = pair.Before(input.name);
    if (after == kNoValue) continue;
    if (const ControlInput* control = AsControl(input)) controls_[after] = control->value;
    if (IsControl(input, ControlValue::kLowerTriangle)) tree_ = input.name;
    if (AsPadded(input) != nullptr && before != kNoValue &&
        forms_.ElementType(after) == forms_.ElementType(before)) {
      twins_[after] = before;
      in_common_.insert(after);
    }
  }
  for (const ManifestCache& cache : relation.caches) {
    if (steps.tokens_fit) BoundTokens(cache);
    AddPast(cache);
  }
  one_ = !relation.caches.empty() &&
         std::all_of(relation.caches.begin(), relation.caches.end(),
                     [&](const ManifestCache& cache) { return HasOneSequence(cache); });
  for (const DroppedInput& dropped : relation.dropped) {
    const ValueId value = pair.Before(dropped.name);
    if (value != kNoValue && IsGiven(dropped, DroppedValue::kPositions)) positions_.insert(value);
  }
  if (!FindShifts(relation)) FindLengths(relation, steps);
  FindRings(relation);
  FindDeclaredNames();
  FindFreeSizes(relation);
  FindSizesOfSteps(relation);
  FindEqualExtents(relation, claims);
  FindDeclaredExtents(relation);
  FindUnmet(steps);
}

void Correspondence::AddPast(const ManifestCache& cache) {
  Past past;
  past.before = pair_.Before(cache.source.input);
  const ValueId after = pair_.After(cache.input);
  if (past.before == kNoValue || after == kNoValue) return;
  if (sym::HoldsFewerNumbers(forms_, past.before)) {
    assumptions_.Add(NumbersOfCache(cache.source.input, forms_.NumbersOf(past.before).Text()));
  }
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

// Assumes that a step has a token, and no more tokens than a buffer of a constant number of slots
// holds. TensorScatter does not take more rows. The size that is bounded is the one that the number
// of rows depends on.
void Correspondence::BoundTokens(const ManifestCache& cache) {
  const ValueId present = pair_.After(cache.output);
  const NodeId write = present == kNoValue ? kNoNode : pair_.graph().producer(present);
  if (cache.source.growing || cache.ring || write == kNoNode ||
      !pair_.graph().Is(write, "TensorScatter")) {
    return;
  }
  const auto operands = pair_.graph().inputs(write);
  const auto axis = static_cast<size_t>(cache.axis);
  const sym::Form buffer = forms_.Of(operands[0]), rows = forms_.Of(operands[1]);
  if (axis >= std::min(buffer.shape.size(), rows.shape.size())) return;
  const Expr slots = buffer.shape[axis];
  const std::vector<sym::DimSymbol> tokens = sym::DimsOf(rows.shape[axis]);
  if (slots->kind() != Kind::kInteger || tokens.size() != 1) return;
  forms_.pool().Dim(tokens[0], 1);
  forms_.pool().Bound(tokens[0], slots);
  assumptions_.Add({AssumptionKind::kNewTokens, tokens[0].name(),
                    fmt::format("1 <= {} <= {}", tokens[0].name(), sym::ToString(slots)),
                    AssumptionSource::kHost});
}

bool Correspondence::HasOneSequence(const ManifestCache& cache) const {
  const ValueId past = pair_.After(cache.input);
  if (past == kNoValue) return false;
  const sym::Form form = forms_.Of(past);
  const size_t axis = cache.layout.find('B');
  return form.known_rank && axis < form.shape.size() && form.shape[axis]->is_integer(1);
}

// Returns true if one step fills every cache of the converted model, as in a graph with static
// shapes for a prompt of as many tokens as the buffers have slots. P + S <= M then leaves no past.
bool Correspondence::HoldsOneStep(const Manifest& relation) {
  for (const ManifestCache& cache : relation.caches) {
    const ValueId past = pair_.Before(cache.source.input), buffer = pair_.After(cache.input);
    const ValueId present = pair_.Before(cache.source.output);
    if (!BecomesBuffer(cache) || IsCircular(relation, cache)) return false;
    if (past == kNoValue || present == kNoValue || buffer == kNoValue) return false;
    const sym::Form before = forms_.Of(past), later = forms_.Of(present), mine = forms_.Of(buffer);
    const auto theirs = static_cast<size_t>(cache.source.axis);
    const auto own = static_cast<size_t>(cache.axis);
    if (!before.known_rank || !later.known_rank || !mine.known_rank ||
        theirs >= std::min(before.shape.size(), later.shape.size()) || own >= mine.shape.size() ||
        mine.shape[own]->kind() != Kind::kInteger) {
      return false;
    }
    const Expr added =
        Normal(forms_.pool().Sub(later.shape[theirs], before.shape[theirs]), Facts{});
    if (added != mine.shape[own]) return false;
  }
  return !relation.caches.empty();
}

void Correspondence::FindLengths(const Manifest& relation, const SourceCase& steps) {
  sym::Pool& pool = forms_.pool();
  const bool none = steps.past == SourceCase::Past::kNone || HoldsOneStep(relation);
  if (steps.window != SourceCase::Window::kNone) FindWindows(relation, steps);
  const Expr in_windows = past_;
  for (const ManifestCache& cache : relation.caches) {
    if (!cache.source.growing || cache.source.kind == UpdateKind::kWindow) continue;
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
  if (new_ != nullptr && new_->kind() == Kind::kDim)
    pool.Dim(new_->dim(), 1);  // a step has a token
  if (steps.one_token && new_ != nullptr && new_->kind() == Kind::kDim) {
    assumptions_.Add({AssumptionKind::kNewTokens, new_->dim().name(),
                      "a step with a past has one token", AssumptionSource::kManifest});
    sizes_[new_->dim()] = pool.Integer(1);
    new_ = pool.Integer(1);
  }
}

// While windows fill, the source's caches hold all P <= W rows. Once they are full, they hold the
// last W of P > W rows.
void Correspondence::FindWindows(const Manifest& relation, const SourceCase& steps) {
  sym::Pool& pool = forms_.pool();
  std::vector<std::pair<const ManifestCache*, WindowOfRows>> windows;
  std::set<int64_t> sizes;
  for (const ManifestCache& cache : relation.caches) {
    if (cache.ring) sizes.insert(cache.ring->window);
    if (cache.source.kind != UpdateKind::kWindow) continue;
    const auto window = ReadWindow(pair_, cache, forms_);
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

// In a FIFO of M slots, M - S rows stay in their slots. P counts all past tokens, also those that
// have left the slots.
bool Correspondence::FindShifts(const Manifest& relation) {
  sym::Pool& pool = forms_.pool();
  std::optional<ShiftOfRows> shift;
  std::vector<ValueId> moved;
  for (const ManifestCache& cache : relation.caches) {
    if (cache.source.growing || cache.source.kind == UpdateKind::kWindow) return false;
    if (cache.source.kind != UpdateKind::kShift) continue;
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

// Slots of a ring hold the tokens of the window; nothing is known about the other slots.
void Correspondence::FindRings(const Manifest& relation) {
  if (past_ == nullptr || new_ == nullptr || left_ == nullptr) return;
  sym::Pool& pool = forms_.pool();
  for (const ManifestCache& cache : relation.caches) {
    const auto past = pasts_.find(pair_.After(cache.input));
    const auto ring = RingOfCache(pair_, cache);
    if (!ring || past == pasts_.end() || !HoldsStep(pool, *ring, new_)) continue;
    const std::string tokens = sym::ToString(new_), slots = sym::ToString(ring->slots);
    assumptions_.Add({AssumptionKind::kNewTokens, cache.id,
                      fmt::format("{} <= {} - {}", tokens, slots, ring->window),
                      AssumptionSource::kHost});
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

Expr Correspondence::SourceFits() const {
  sym::Pool& pool = forms_.pool();
  Expr all = pool.True();
  for (const sym::FormAssumption& assumption : forms_.assumptions()) {
    const Expr e = assumption.predicate;
    if (pair_.IsInAfter(assumption.node) || e->kind() != Kind::kLe) continue;
    const Expr normal = Normal(e, Facts{});
    if (normal->has_index()) continue;
    all = pool.And(all, normal);
    // A bound on P + S holds for each sequence, and so for the longest one.
    if (normal->kind() != Kind::kLe || past_ == nullptr || new_ == nullptr) continue;
    const Expr beside = pool.Sub(normal->args()[0], total());
    if (beside->kind() != Kind::kInteger) continue;
    for (const Expr rows : longest_) {
      all = pool.And(all, pool.Le(pool.Add(rows, beside), pool.Integer(0), Facts{}));
    }
  }
  return all;
}

Expr Correspondence::Fits() const {
  Expr all = forms_.pool().True();
  for (const Expr part : FitParts()) all = forms_.pool().And(all, part);
  return all;
}

// The rows of each sequence fit, and so do those of the longest one.
const std::vector<Expr>& Correspondence::FitParts() const {
  sym::Pool& pool = forms_.pool();
  const std::pair<size_t, size_t> counted = {capacities_.size(), longest_.size()};
  if (past_ == nullptr || new_ == nullptr || counted == fit_counted_) return fit_parts_;
  fit_counted_ = counted;
  fit_parts_.clear();
  for (const Expr slots : capacities_) {
    for (const Expr rows : {total(), past_, new_}) {
      fit_parts_.push_back(pool.Le(rows, slots, Facts{}));
    }
    for (const Expr rows : longest_) fit_parts_.push_back(pool.Le(rows, slots, Facts{}));
  }
  return fit_parts_;
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

void Correspondence::SetTwin(ValueId after, ValueId before, Sameness same, Grounds grounds) {
  twins_[after] = before;
  if (same == Sameness::kWhole) {
    in_common_.erase(after);
  } else {
    in_common_.insert(after);
  }
  const sym::Form mine = forms_.Of(after), theirs = forms_.Of(before);
  const bool comparable = !grounds.doubted && mine.known_rank && theirs.known_rank &&
                          mine.shape.size() == theirs.shape.size();
  for (size_t k = 0; comparable && k < mine.shape.size(); ++k) {
    // An extent that no operator determines is a symbol that belongs to the value's axis.
    if (mine.shape[k]->kind() != Kind::kDim) continue;
    const sym::DimSymbol& name = mine.shape[k]->dim();
    if (same == Sameness::kWhole && name == forms_.OwnSymbol(after, static_cast<int>(k))) {
      sizes_[name] = theirs.shape[k];
    }
  }
  grounds_of_.erase(after);
  if (!grounds.empty()) grounds_of_[after] = std::move(grounds);
}

void Correspondence::SetTwinWithGroupsAsTokens(ValueId after, ValueId before, int64_t groups,
                                               Expr tokens, Grounds grounds) {
  SetTwin(after, before, Sameness::kWhole, std::move(grounds));
  groups_as_tokens_[after] = {groups, tokens};
}

void Correspondence::SetTwinWithBatchTimesHeads(ValueId after, ValueId before, int64_t heads,
                                                Grounds grounds) {
  SetTwin(after, before, Sameness::kWhole, std::move(grounds));
  batch_times_heads_[after] = heads;
}

void Correspondence::SetTwinWithHeadsInLastAxis(ValueId after, ValueId before, Expr size,
                                                Grounds grounds) {
  SetTwin(after, before, Sameness::kWhole, std::move(grounds));
  heads_in_last_axis_[after] = size;
}

void Correspondence::SetTwinWithGroupsAsTokensAndHeadsInLastAxis(ValueId after, ValueId before,
                                                                 int64_t groups, Expr tokens,
                                                                 Expr size, Grounds grounds) {
  SetTwinWithHeadsInLastAxis(after, before, size, std::move(grounds));
  groups_as_tokens_[after] = {groups, tokens};
}

Grounds Correspondence::TakeGrounds() const { return std::exchange(grounds_, {}); }

Sameness Correspondence::TwinSameness(ValueId after, ValueId before) const {
  const ValueId twin = TwinOf(after);
  if (twin == kNoValue || repeated_.FirstOf(twin) != repeated_.FirstOf(before) ||
      batch_times_heads_.contains(after) || heads_by_group_.contains(after) ||
      groups_as_tokens_.contains(after) || heads_in_last_axis_.contains(after)) {
    return Sameness::kNone;
  }
  RestOnTwin(after);
  return in_common_.contains(after) ? Sameness::kInCommon : Sameness::kWhole;
}

void Correspondence::RestOnTwin(ValueId after) const {
  if (const auto it = grounds_of_.find(after); it != grounds_of_.end()) grounds_.Add(it->second);
}

ValueId Correspondence::TwinOf(ValueId value) const {
  if (const auto it = twins_.find(value); it != twins_.end()) return it->second;
  return pair_.IsValueInAfter(value) ? kNoValue : value;
}

}  // namespace kvlift
