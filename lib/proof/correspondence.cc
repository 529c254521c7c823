#include "proof/correspondence.h"

#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <map>
#include <set>
#include <utility>

#include "contract/positions.h"
#include "fmt/format.h"
#include "proof/attention_reading.h"
#include "proof/lemmas/longest_sequence.h"
#include "proof/lemmas/names.h"
#include "proof/mask_widths.h"
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

namespace {

// Selections anywhere in it.
std::vector<Expr> SelectsIn(Expr e) {
  std::vector<Expr> found, open = {e};
  std::set<Expr> seen;
  while (!open.empty()) {
    const Expr next = open.back();
    open.pop_back();
    if (!seen.insert(next).second) continue;
    if (next->kind() == Kind::kSelect) found.push_back(next);
    for (Expr arg : next->args()) open.push_back(arg);
    for (const sym::Term& term : next->terms()) {
      open.insert(open.end(), term.atoms.begin(), term.atoms.end());
    }
  }
  return found;
}

}  // namespace

Correspondence::Correspondence(const GraphPair& pair, const Manifest& relation,
                               const std::vector<LengthClaim>& claims, const SourceCase& steps)
    : pair_(pair), forms_(pair.forms()), uniform_(relation.uniform) {
  for (const ManifestInput& input : relation.inputs) {
    const ValueId after = pair.After(input.name), before = pair.Before(input.name);
    if (after == kNoValue) continue;
    if (input.as == "control") controls_[after] = input.value;
    if (input.as == "control" && input.value == kLowerTriangle) tree_ = input.name;
    if (input.as == "pad_to_capacity" && before != kNoValue &&
        forms_.ElementType(after) == forms_.ElementType(before)) {
      twins_[after] = before;
      in_common_.insert(after);
    }
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
  FindDeclaredNames();
  FindFreeSizes(relation);
  FindEqualExtents(relation, claims);
  FindDeclaredExtents(relation);
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
  if (new_ != nullptr && new_->kind() == Kind::kDim)
    pool.Dim(new_->dim(), 1);  // a step has a token
  if (steps.one_token && new_ != nullptr && new_->kind() == Kind::kDim) {
    assumptions_.Add({AssumptionKind::kNewTokens, new_->dim().name(),
                      "a step with a past has one token", AssumptionSource::kManifest});
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
  for (const sym::Assumption& assumption : forms_.assumptions()) {
    const Expr e = assumption.predicate;
    if (pair_.IsOfAfter(assumption.node) || e->kind() != Kind::kLe) continue;
    const Expr normal = Normal(e, Facts{});
    if (!normal->has_index()) all = pool.And(all, normal);
  }
  return all;
}

Expr Correspondence::Fits() const {
  Expr all = forms_.pool().True();
  for (const Expr part : FitParts()) all = forms_.pool().And(all, part);
  return all;
}

// Rows of each sequence fit, those of the longest as well.
std::vector<Expr> Correspondence::FitParts() const {
  sym::Pool& pool = forms_.pool();
  std::vector<Expr> parts;
  if (past_ == nullptr || new_ == nullptr) return parts;
  for (const Expr slots : capacities_) {
    for (const Expr rows : {total(), past_, new_}) parts.push_back(pool.Le(rows, slots, Facts{}));
    for (const Expr rows : longest_) parts.push_back(pool.Le(rows, slots, Facts{}));
  }
  return parts;
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
void Correspondence::FindEqualExtents(const Manifest& relation,
                                      const std::vector<LengthClaim>& claims) {
  for (NodeId n = 0; n < pair_.graph().num_nodes(); ++n) {
    for (ValueId output : pair_.graph().outputs(n)) {
      if (output != kNoValue && !pair_.IsOfAfter(n)) forms_.Of(output);
    }
  }
  if (past_ == nullptr || new_ == nullptr) return FindExactQuotients();
  for (const sym::Assumption& assumption : forms_.assumptions()) {
    if (pair_.IsOfAfter(assumption.node) || assumption.predicate->kind() != Kind::kEq) continue;
    TakeAsEqual(assumption);
  }
  FindExactQuotients();
  // An operator broadcasts a mask, too, if the mask has one sequence.
  for (NodeId n = 0; n < pair_.graph().num_nodes(); ++n) {
    if (pair_.IsOfAfter(n) || !pair_.graph().Is(n, "Attention")) continue;
    const AttentionReading reading = ReadAttention(forms_, pair_.graph().outputs(n)[0]);
    for (const auto& [x, y] : reading.equal_extents) {
      if (x == y) continue;
      MakeZero(Normal(forms_.pool().Sub(x, y), Facts{}), AssumptionKind::kDimension, "");
    }
  }
  for (const LengthClaim& claim : claims) {
    MakeZero(Beyond(claim), AssumptionKind::kDimension, "");
  }
  // A mask that is padded up to the capacity is as wide as there are tokens.
  for (const ManifestInput& input : relation.inputs) {
    const ValueId mask = pair_.Before(input.name);
    if (input.as != "pad_to_capacity" || mask == kNoValue || input.axis < 0) continue;
    const sym::Form form = forms_.Of(mask);
    const auto axis = static_cast<size_t>(input.axis);
    if (!form.known_rank || axis >= form.shape.size()) continue;
    const Expr wider = forms_.pool().Sub(form.shape[axis], total());
    MakeZero(Normal(wider, Facts{}), AssumptionKind::kMaskWidth, input.name);
  }
}

// Names of the number of sequences, which is free as P and S are.
void Correspondence::FindFreeSizes(const Manifest& relation) {
  for (const ManifestCache& cache : relation.caches) {
    const auto past = pasts_.find(pair_.After(cache.input));
    const size_t letter = cache.layout.find('B');
    if (past == pasts_.end() || letter == std::string::npos) continue;
    const sym::Form form = forms_.Of(past->second.before);
    const std::vector<int>& axes = past->second.axes;
    const auto axis = std::find(axes.begin(), axes.end(), static_cast<int>(letter)) - axes.begin();
    if (!form.known_rank || axis >= std::ssize(form.shape)) continue;
    const Expr sequences = form.shape[static_cast<size_t>(axis)];
    if (sequences->kind() == Kind::kDim) batch_.insert(sequences->dim());
  }
}

namespace {

// The one term of a product of a number and sizes; nullopt of other expressions.
std::optional<sym::Term> ProductIn(Expr e) {
  if (e->kind() == Kind::kInteger) return sym::Term{e->value(), {}};
  if (e->kind() == Kind::kDim) return sym::Term{1, {e}};
  if (e->kind() != Kind::kSum || e->terms().size() != 1) return std::nullopt;
  return e->terms()[0];
}

// What times the count is e; null if there is nothing.
Expr Quotient(sym::Pool& pool, Expr e, Expr count) {
  const sym::Term divisor = *ProductIn(count);
  if (e->kind() != Kind::kSum) return nullptr;
  Expr quotient = pool.Integer(0);
  for (const sym::Term& term : e->terms()) {
    if (term.coefficient % divisor.coefficient != 0) return nullptr;
    std::vector<Expr> atoms = term.atoms;
    for (Expr atom : divisor.atoms) {
      const auto found = std::find(atoms.begin(), atoms.end(), atom);
      if (found == atoms.end()) return nullptr;
      atoms.erase(found);
    }
    Expr part = pool.Integer(term.coefficient / divisor.coefficient);
    for (Expr atom : atoms) part = pool.Mul(part, atom);
    quotient = pool.Add(quotient, part);
  }
  return quotient;
}

}  // namespace

// Where a == b * (a div b), and a div b is c, a is b * c.
void Correspondence::FindExactQuotients() {
  sym::Pool& pool = forms_.pool();
  // Of sequences, or heads in them: a step has one at least.
  const auto is_count = [&](Expr e) {
    const auto term = ProductIn(e);
    return term && term->coefficient >= 1 &&
           std::all_of(term->atoms.begin(), term->atoms.end(), [&](Expr atom) {
             return atom->kind() == Kind::kDim && batch_.contains(atom->dim());
           });
  };
  std::vector<Expr> zero;
  for (const sym::Assumption& assumption : forms_.assumptions()) {
    if (pair_.IsOfAfter(assumption.node) || assumption.predicate->kind() != Kind::kEq) continue;
    zero.push_back(Normal(assumption.predicate->args()[0], Facts{}));
  }
  for (Expr e : zero) {
    for (Expr division : sym::DivisionsOf(e)) {
      const Expr number = pool.Sub(division, e);  // if e is the division less it
      if (!is_count(number)) continue;
      const Expr a = division->args()[0], b = division->args()[1];
      const Expr rest = pool.Sub(a, pool.Mul(b, division));
      const bool exact = std::any_of(zero.begin(), zero.end(), [&](Expr other) {
        return other == rest || other == pool.Neg(rest);
      });
      if (!exact) continue;
      const Expr apart = pool.Sub(a, pool.Mul(b, number));
      const Expr one = Quotient(pool, apart, number);
      MakeZero(one != nullptr ? one : apart, AssumptionKind::kDimension, "");
    }
  }
}

bool Correspondence::IsFree(const sym::DimSymbol& name) const {
  return name == sym::DimSymbol::Internal(kPast) || name == sym::DimSymbol::Internal(kLeft) ||
         (new_ != nullptr && sym::ContainsDim(new_, name));
}

// An operator of the source runs where these sizes are equal, or one of them is 1 and is broadcast.
// B, P and S are what they are: where they would have to be equal, or one size of them, it is a
// broadcast that is meant, and the forms are of a few steps only.
void Correspondence::TakeAsEqual(const sym::Assumption& assumption) {
  const Expr difference = Normal(assumption.predicate->args()[0], Facts{});
  if (difference->is_integer(0) || !sym::LoadsOf(difference).empty()) return;
  const auto names = sym::DimsOf(difference);
  const auto is_batch = [&](const sym::DimSymbol& name) { return batch_.contains(name); };
  const bool batches = names.size() > 1 && std::all_of(names.begin(), names.end(), is_batch);
  const std::set<sym::DimSymbol> none;
  if (MakeZero(difference, AssumptionKind::kDimension, "", batches ? none : batch_)) return;
  const bool few = std::all_of(names.begin(), names.end(), [&](const sym::DimSymbol& name) {
    return IsFree(name) || is_batch(name);
  });
  if (!few) {
    MakeZero(difference, AssumptionKind::kDimension, "");
  } else if (unmet_.empty()) {
    unmet_ = fmt::format("the source is read for steps with {} only", assumption.text);
  }
}

// False if no name is told by it.
bool Correspondence::MakeZero(Expr difference, AssumptionKind kind, const std::string& subject,
                              const std::set<sym::DimSymbol>& kept) {
  sym::Pool& pool = forms_.pool();
  if (difference == nullptr || !sym::LoadsOf(difference).empty()) return false;
  for (const sym::DimSymbol& name : sym::DimsOf(difference)) {
    if (IsFree(name) || kept.contains(name)) continue;
    const auto linear = sym::LinearIn(pool, difference, pool.Dim(name));
    if (!linear || std::abs(linear->coefficient) != 1) continue;
    const Expr size = linear->coefficient == 1 ? pool.Neg(linear->rest) : linear->rest;
    // What was told by that size is told by what it is now.
    sym::Pool::Substitution known;
    known.dims[name] = size;
    for (auto& [other, own] : sizes_) own = pool.Substitute(own, known, Facts{});
    sizes_[name] = size;
    // A size that no input declares is what an operator makes or refuses.
    const bool host = forms_.OriginOf(name).has_value();
    assumptions_.Add({kind, subject.empty() ? name.name() : subject,
                      fmt::format("{} = {}", name.name(), sym::ToString(size)),
                      host ? AssumptionSource::kHost : AssumptionSource::kOperator, !host});
    return true;
  }
  return false;
}

// Inputs of the source that declare a size of one name are fed with one size.
void Correspondence::FindDeclaredNames() {
  const Graph& graph = pair_.graph();
  std::map<std::string, std::vector<std::string>> places;
  for (ValueId input : graph.graph_inputs()) {
    if (pair_.NameOf(input) != graph.name(input) || !graph.type(input).shape) continue;
    const auto& shape = *graph.type(input).shape;
    for (size_t k = 0; k < shape.size(); ++k) {
      if (shape[k].param.empty()) continue;
      places[shape[k].param].push_back(fmt::format("{}.shape[{}]", graph.name(input), k));
    }
  }
  for (const auto& [name, all] : places) {
    if (all.size() < 2) continue;
    assumptions_.Add({AssumptionKind::kDimension, name,
                      fmt::format("{} = {}", name, fmt::join(all, " = ")),
                      AssumptionSource::kHost});
  }
}

// Sizes of inputs that only the conversion has, by what the relation says of their axes: those of a
// cache are the source's but for its slots, a control's are one for each sequence or token.
void Correspondence::FindDeclaredExtents(const Manifest& relation) {
  Expr sequences = nullptr;
  for (const ManifestCache& cache : relation.caches) {
    const auto found = pasts_.find(pair_.After(cache.input));
    if (found == pasts_.end() || cache.layout.find('(') != std::string::npos) continue;
    const Past& past = found->second;
    const sym::Form mine = forms_.Of(found->first), theirs = forms_.Of(past.before);
    if (!mine.known_rank || !theirs.known_rank || theirs.shape.size() != past.axes.size()) continue;
    const sym::Form present = forms_.Of(pair_.Before(cache.source.output));
    for (size_t k = 0; k < past.axes.size(); ++k) {
      const int axis = past.axes[k];
      if (axis < 0 || axis >= static_cast<int>(mine.shape.size())) continue;
      const auto letter = static_cast<size_t>(axis);
      if (cache.layout[letter] == 'B' && sequences == nullptr) sequences = theirs.shape[k];
      if (k == past.sequence && cache.source.growing) {
        if (!cache.ring && !cache.grows) capacities_.push_back(mine.shape[letter]);
        continue;
      }
      // A source may have room for more sequences than a step has.
      const bool step = cache.layout[letter] == 'B' && !cache.source.growing &&
                        present.known_rank && present.shape.size() == theirs.shape.size();
      SetSize(mine.shape[letter], (step ? present : theirs).shape[k]);
    }
  }
  for (const ManifestInput& input : relation.inputs) {
    const ValueId after = pair_.After(input.name);
    if (after == kNoValue) continue;
    const sym::Form mine = forms_.Of(after);
    if (!mine.known_rank) continue;
    for (size_t k = 0; input.as == "control" && k < mine.shape.size(); ++k) {
      const std::string letter = k < input.shape.size() ? input.shape[k] : "";
      if (letter == "B") SetSize(mine.shape[k], sequences);
      if (letter == "S") SetSize(mine.shape[k], new_);
      // What holds for all heads alike has one row for them.
      if (letter == "1|N") SetSize(mine.shape[k], forms_.pool().Integer(1));
    }
    const auto twin = twins_.find(after);
    if (input.as != "pad_to_capacity" || twin == twins_.end()) continue;
    const sym::Form theirs = forms_.Of(twin->second);
    if (!theirs.known_rank || theirs.shape.size() != mine.shape.size()) continue;
    for (size_t k = 0; k < mine.shape.size(); ++k) {
      if (static_cast<int64_t>(k) != input.axis) SetSize(mine.shape[k], theirs.shape[k]);
    }
    // A mask has a row for each sequence, whatever it declares; with one row it would be broadcast.
    if (input.axis > 0 && sequences != nullptr && new_ != nullptr) {
      const Expr apart = forms_.pool().Sub(theirs.shape[0], sequences);
      MakeZero(Normal(apart, Facts{}), AssumptionKind::kDimension, input.name);
    }
  }
  if (past_ == nullptr || new_ == nullptr) return;
  // The same holds of masks that both models are fed, as wide as there are tokens.
  std::set<sym::DimSymbol> open;
  for (ValueId input : pair_.graph().graph_inputs()) {
    if (pair_.After(pair_.graph().name(input)) != input) continue;
    const sym::Form form = forms_.Of(input);
    for (size_t k = 0; form.known_rank && k < form.shape.size(); ++k) {
      if (form.shape[k]->kind() != Kind::kDim) continue;
      const sym::DimSymbol& name = form.shape[k]->dim();
      if (!IsFree(name) && !sizes_.contains(name) && !batch_.contains(name)) open.insert(name);
    }
  }
  for (const auto& [input, rows, columns] : SizesOfMasks(pair_, relation, std::move(open))) {
    sym::Pool& pool = forms_.pool();
    MakeZero(Normal(pool.Sub(columns, total()), Facts{}), AssumptionKind::kMaskWidth, input);
    if (rows == nullptr || sequences == nullptr) continue;
    MakeZero(Normal(pool.Sub(rows, sequences), Facts{}), AssumptionKind::kDimension, input);
  }
}

// A size of the conversion is this one of the source. Where it is another one already, or a number,
// the source's are equal.
void Correspondence::SetSize(Expr own, Expr theirs) {
  if (own == nullptr || theirs == nullptr) return;
  theirs = Normal(theirs, Facts{});
  if (Normal(own, Facts{}) == theirs) return;
  if (own->kind() == Kind::kDim && sizes_.try_emplace(own->dim(), theirs).second) return;
  const Expr other = Normal(own, Facts{});
  if (other == theirs) return;
  const Expr difference = forms_.pool().Sub(theirs, other);
  if (new_ != nullptr) MakeZero(difference, AssumptionKind::kDimension, "");
}

namespace {

// Small numbers that sizes are tried with.
constexpr int64_t kSmallSizes[] = {1, 2, 3, 0, 5, 8, 17, 64, 700, 5000};
constexpr size_t kMostFree = 6;  // sizes that are tried one by one
constexpr int kMostTried = 20000;

}  // namespace

// choice: of the free sizes, by their place in kSmallSizes; further ones are as the last of these.
bool Correspondence::Holds(const std::vector<Expr>& conditions,
                           const std::vector<sym::DimSymbol>& free,
                           const std::vector<size_t>& choice) const {
  sym::Pool& pool = forms_.pool();
  sym::Pool::Substitution values;
  for (size_t k = 0; k < free.size(); ++k) {
    const size_t own = choice[std::min(k, choice.size() - 1)];
    values.dims[free[k]] = pool.Integer(kSmallSizes[own]);
  }
  // Sizes may be told by others that are told by others.
  std::vector<sym::DimSymbol> open;
  for (const auto& [name, size] : sizes_) open.push_back(name);
  while (!open.empty()) {
    std::vector<sym::DimSymbol> left;
    for (const sym::DimSymbol& name : open) {
      const Expr size = pool.Substitute(sizes_.at(name), values, Facts{});
      if (size->kind() != Kind::kInteger) {
        left.push_back(name);
        continue;
      }
      if (size->value() < 0) return false;
      values.dims[name] = size;
    }
    if (left.size() == open.size()) return false;
    open = std::move(left);
  }
  return std::all_of(conditions.begin(), conditions.end(), [&](Expr condition) {
    return pool.Substitute(condition, values, Facts{})->is_integer(1);
  });
}

// Whether some small sizes are as the premises say.
std::string Correspondence::Contradiction(absl::Span<const Expr> premises) const {
  if (!unmet_.empty()) return unmet_;
  std::set<sym::DimSymbol> names;
  std::vector<Expr> conditions;
  for (const auto& [name, size] : sizes_) {
    for (const sym::DimSymbol& dim : sym::DimsOf(size)) names.insert(dim);
  }
  for (Expr premise : premises) {
    if (premise == nullptr || !sym::LoadsOf(premise).empty()) continue;
    conditions.push_back(premise);
    for (const sym::DimSymbol& dim : sym::DimsOf(premise)) names.insert(dim);
  }
  std::vector<sym::DimSymbol> free;
  for (const sym::DimSymbol& name : names) {
    if (!sizes_.contains(name)) free.push_back(name);
  }
  std::vector<size_t> choice(std::min(free.size(), kMostFree), 0);
  for (int tried = 0; tried < kMostTried; ++tried) {
    if (Holds(conditions, free, choice)) return "";
    size_t k = 0;
    while (k < choice.size() && ++choice[k] == std::size(kSmallSizes)) choice[k++] = 0;
    if (k == choice.size()) break;
  }
  return "what sizes are taken to be contradicts itself: no small sizes are so";
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
    // A size that no form tells is named by its value.
    if (mine.shape[k]->kind() != Kind::kDim) continue;
    const sym::DimSymbol& name = mine.shape[k]->dim();
    if (same == Sameness::kWhole && name == forms_.OwnSymbol(after, static_cast<int>(k))) {
      sizes_[name] = theirs.shape[k];
    }
  }
  grounds_of_.erase(after);
  if (!grounds.empty()) grounds_of_[after] = std::move(grounds);
}

void Correspondence::SetStackedTwin(ValueId after, ValueId before, int64_t groups, Expr tokens,
                                    Grounds grounds) {
  SetTwin(after, before, Sameness::kWhole, std::move(grounds));
  stacked_[after] = {groups, tokens};
}

void Correspondence::SetFoldedTwin(ValueId after, ValueId before, int64_t heads, Grounds grounds) {
  SetTwin(after, before, Sameness::kWhole, std::move(grounds));
  folded_[after] = heads;
}

void Correspondence::SetJoinedTwin(ValueId after, ValueId before, Expr size, Grounds grounds) {
  SetTwin(after, before, Sameness::kWhole, std::move(grounds));
  joined_[after] = size;
}

Grounds Correspondence::TakeGrounds() const { return std::exchange(grounds_, {}); }

Sameness Correspondence::TwinSameness(ValueId after, ValueId before) const {
  const auto it = twins_.find(after);
  if (it == twins_.end() || it->second != before || folded_.contains(after) ||
      stacked_.contains(after) || joined_.contains(after)) {
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
      const std::string name = pair_.NameOf(load->source());
      RestOn({AssumptionKind::kPositions, name, fmt::format("{} holds P..T-1", name),
              AssumptionSource::kManifest});
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
      RestOn({AssumptionKind::kTreeMask, tree_,
              fmt::format("{} is the lower triangle: a new token sees those in front of it", tree_),
              AssumptionSource::kManifest});
      return args.size() == 4 ? pool.Le(args[3], args[2], facts) : nullptr;
    }
    if (args.size() != 1 || past_ == nullptr) return nullptr;
    if (args[0] != batch && !(one_ && args[0]->is_integer(0))) {
      if (!uniform_) return nullptr;
      RestOnOneLength();
    }
    return it->second == "T" ? total() : past_;
  }
  if (const auto it = pasts_.find(source); it != pasts_.end()) {
    return PastRow(it->second, source, args, facts);
  }
  if (const auto it = twins_.find(source); it != twins_.end()) {
    RestOnTwin(source);
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
  if (const Expr most = OfLongest(producer, batch, facts); most != nullptr) return most;
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
  if (forms_.pool().Substitute(e, shift, Facts{}) != e) return nullptr;
  RestOnOneLength();
  return e;
}

// The largest of numbers, one for each sequence: that of the sequence at hand, and some more unless
// all are one.
Expr Correspondence::OfLongest(NodeId n, Expr batch, const Facts& facts) const {
  if (n == kNoNode || !pair_.IsOfAfter(n)) return nullptr;
  const ValueId numbers = LargestOf(forms_, n);
  if (numbers == kNoValue) return nullptr;
  const Expr own = Translate(forms_.At(numbers, {batch}, facts), batch, facts);
  if (own == nullptr) return nullptr;
  const bool one = !own->has_index() && !sym::ContainsDim(own, sym::DimSymbol::Internal(kPast));
  if (one && batch->kind() == Kind::kIndex) return own;
  RestOnLemma(lemmas::kLongestSequence);
  const Expr more = MoreOfLongest(forms_, n);
  // Where the numbers are P + S less what is the same for all sequences, P + S is that much more.
  const Expr less = past_ == nullptr ? nullptr : forms_.pool().Sub(total(), own);
  if (less != nullptr && sym::LoadsOf(less).empty() && !less->has_index() &&
      !sym::ContainsDim(less, sym::DimSymbol::Internal(kPast))) {
    longest_.insert(forms_.pool().Add(total(), more));
  }
  return forms_.pool().Add(own, more);
}

// e where P + S rows fit into the slots.
Expr Correspondence::Fitted(Expr e, const Facts& facts) const {
  sym::Pool& pool = forms_.pool();
  const std::vector<Expr> parts = FitParts();
  const auto under = [&](Expr x) {
    for (const Expr part : parts) x = pool.Assume(x, part, true, facts);
    return x;
  };
  if (parts.empty() || e->kind() == Kind::kInteger) return e;
  Expr fitted = under(e);
  // What is selected inside of sums that are compared.
  sym::Pool::Substitution s;
  for (Expr select : SelectsIn(fitted)) {
    const Expr condition = under(select->args()[0]), a = select->args()[1], b = select->args()[2];
    if (condition->kind() == Kind::kInteger) {
      s.atoms[select] = under(condition->value() != 0 ? a : b);
    } else if (condition->kind() == Kind::kLe) {
      // The smaller or larger of two: a - b, or b - a, is what is at most 0.
      const Expr x = condition->args()[0], apart = pool.Sub(a, b);
      const bool other = apart == x || apart == pool.Neg(x);
      if (other && under(pool.Le(pool.Integer(0), x, facts))->is_integer(1)) s.atoms[select] = b;
    }
  }
  if (!s.atoms.empty()) fitted = pool.Substitute(fitted, s, facts);
  if (fitted == e) return e;
  for (const Expr slots : capacities_) {
    RestOn({AssumptionKind::kCapacity, "",
            fmt::format("P + S <= {}", sym::ToString(slots, &pair_.graph())),
            AssumptionSource::kOperator, true});
  }
  return fitted;
}

void Correspondence::RestOnOneLength() const {
  RestOn({AssumptionKind::kOneLength, "", "all sequences of a batch have as many past tokens",
          AssumptionSource::kManifest});
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
  const Expr translated = Fitted(forms_.pool().Substitute(e, s, facts), facts);
  return !tree_.empty() ? Absorbed(forms_.pool(), translated, facts) : translated;
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
