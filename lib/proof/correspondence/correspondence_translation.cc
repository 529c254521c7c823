// Rewrites elements and extents of the converted model in the source's terms.
#include <set>
#include <utility>

#include "fmt/format.h"
#include "proof/correspondence/correspondence.h"
#include "proof/lemmas/longest_sequence.h"
#include "proof/lemmas/names.h"
#include "sym/forms/broadcast.h"

namespace kvlift {

using sym::Expr;
using sym::Facts;
using sym::Kind;

namespace {

// Simplifies a conjunction by taking its comparisons as true in its other parts: p and (q or (p and
// r)) becomes p and (q or r).
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

// Returns all selects in e.
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

Expr Correspondence::Normal(Expr e, const Facts& facts) const {
  if (e == nullptr) return nullptr;
  sym::Pool::Substitution s;
  s.dims = sizes_;
  if (!repeated_.empty()) {
    for (Expr load : sym::LoadsOf(e)) {
      const ValueId first = repeated_.FirstOf(load->source());
      if (first != load->source()) s.atoms[load] = forms_.pool().Load(first, load->args());
    }
  }
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

// Returns the row of the source's past that a ring slot holds. A slot that holds none of its rows
// keeps the converted model's own element.
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
    if (it->second == ControlValue::kPositions) {
      const bool own = args.size() == 1 || (args.size() == 2 && args[0] == batch);
      return own && past_ != nullptr ? pool.Add(past_, args.back()) : nullptr;
    }
    if (it->second == ControlValue::kLowerTriangle) {
      RestOn({AssumptionKind::kTreeMask, tree_,
              fmt::format("{} is the lower triangle: a new token sees those in front of it", tree_),
              AssumptionSource::kManifest});
      return args.size() == 4 ? pool.Le(args[3], args[2], facts) : nullptr;
    }
    if (args.size() != 1 || past_ == nullptr || new_ == nullptr) return nullptr;
    if (args[0] != batch && !(one_ && args[0]->is_integer(0))) {
      if (!uniform_) return nullptr;
      RestOnOneLength();
    }
    return it->second == ControlValue::kTotalLength ? total() : past_;
  }
  if (const auto it = pasts_.find(source); it != pasts_.end()) {
    return PastRow(it->second, source, args, facts);
  }
  if (const auto it = twins_.find(source); it != twins_.end()) {
    if (ReadsOtherSequence(source, args, batch)) {
      if (!uniform_) return nullptr;
      RestOnOneLength();
    }
    RestOnTwin(source);
    if (const auto heads = batch_times_heads_.find(source);
        heads != batch_times_heads_.end() && args.size() == 4) {
      args[1] = pool.Add(pool.Mul(args[0], pool.Integer(heads->second)), args[1]);
      args.erase(args.begin());
    }
    if (const auto stack = groups_as_tokens_.find(source);
        stack != groups_as_tokens_.end() && args.size() == 4) {
      const auto& [groups, tokens] = stack->second;
      const Expr g = pool.FloorDiv(args[2], tokens, facts);
      args[1] = pool.Add(pool.Mul(args[1], pool.Integer(groups)), g);
      args[2] = pool.Sub(args[2], pool.Mul(g, tokens));
    }
    if (const auto split = heads_by_group_.find(source);
        split != heads_by_group_.end() && args.size() == 4) {
      const Expr size = pool.Integer(split->second);
      const Expr key_head = pool.FloorDiv(args[1], size, facts);
      args.insert(args.begin() + 2, pool.Sub(args[1], pool.Mul(key_head, size)));
      args[1] = key_head;
    }
    if (const auto join = heads_in_last_axis_.find(source); join != heads_in_last_axis_.end()) {
      const Expr size = join->second;
      if (args.size() == 4) {
        args = {args[0], args[2], pool.Add(pool.Mul(args[1], size), args[3])};
      } else {
        const Expr head = pool.FloorDiv(args[2], size, facts);
        args = {args[0], head, args[1], pool.Sub(args[2], pool.Mul(head, size))};
      }
    }
    return Normal(sym::BroadcastAt(forms_, it->second, args, Facts{}), Facts{});
  }
  const NodeId producer = pair_.graph().producer(source);
  if (const Expr one = OneForAll(producer, batch, facts); one != nullptr) return one;
  if (const Expr most = OfLongest(producer, batch, facts); most != nullptr) return most;
  if (const Expr row = RowOfTable(producer, load->args(), batch, facts); row != nullptr) return row;
  if (pair_.IsValueInAfter(source)) return nullptr;
  return pool.Load(repeated_.FirstOf(source), args);
}

Expr Correspondence::SequenceOf(absl::Span<const Expr> shape, const Facts& facts) const {
  sym::Pool& pool = forms_.pool();
  const Expr index = pool.Index(0), each = shape.empty() ? nullptr : EachOf(shape[0]);
  if (each == nullptr) return index;
  if (sym::LoadsOf(each).empty()) return pool.FloorDiv(index, each, facts);
  // The converted model computes r, as for rows up to the end of the longest sequence. A sequence's
  // number is in the source's terms only if r is.
  const Expr own = uniform_ ? Translate(each, index, facts) : nullptr;
  return own == nullptr || own->has_index() ? nullptr : pool.FloorDiv(index, own, facts);
}

Expr Correspondence::EachOf(Expr extent) const {
  sym::Pool& pool = forms_.pool();
  const Expr count = sequences();
  if (count == nullptr || count->kind() != Kind::kDim) return nullptr;
  const Expr normal = Normal(extent, Facts{});
  sym::Pool::Substitution one;
  one.dims[count->dim()] = pool.Integer(1);
  const Expr each = pool.Substitute(normal, one, Facts{});
  return pool.Mul(each, count) == normal ? each : nullptr;
}

// Returns true if an element of another sequence is read. A value of the converted model
// corresponds to the source's run of the element's own sequence.
bool Correspondence::ReadsOtherSequence(ValueId source, absl::Span<const Expr> at,
                                        Expr batch) const {
  const Expr count = sequences();
  if (count == nullptr || count->kind() != Kind::kDim) return false;
  const sym::Form form = forms_.Of(source);
  for (size_t k = 0; k < form.shape.size() && k < at.size(); ++k) {
    if (at[k] != batch && Normal(form.shape[k], Facts{}) == count) return true;
  }
  return false;
}

// The maximum or minimum of one number per sequence, if all sequences have the same length and so
// the same number.
Expr Correspondence::OneForAll(NodeId n, Expr batch, const Facts& facts) const {
  const Graph& graph = pair_.graph();
  if (!uniform_ || n == kNoNode || !pair_.IsInAfter(n)) return nullptr;
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

// Translates the maximum of one number per sequence: it is the number of sequence `batch` plus some
// k >= 0, or that number itself if it is the same for all sequences.
Expr Correspondence::OfLongest(NodeId n, Expr batch, const Facts& facts) const {
  if (n == kNoNode || !pair_.IsInAfter(n)) return nullptr;
  const ValueId numbers = LargestOf(forms_, n);
  if (numbers == kNoValue) return nullptr;
  if (Extent(forms_.Of(numbers).shape[0], batch) != sequences()) return nullptr;
  const Expr own = Translate(forms_.At(numbers, {batch}, facts), batch, facts);
  if (own == nullptr) return nullptr;
  const bool one = !own->has_index() && !sym::ContainsDim(own, sym::DimSymbol::Internal(kPast));
  if (one && batch->kind() == Kind::kIndex) return own;
  RestOnLemma(lemmas::kLongestSequence);
  const Expr more = MoreOfLongest(forms_, n);
  // If the numbers are P + S minus a term that is the same for all sequences, P + S of the longest
  // sequence is k more than that of sequence `batch`.
  const Expr all = total();
  const Expr less = all != nullptr ? forms_.pool().Sub(all, own) : nullptr;
  if (less != nullptr && sym::LoadsOf(less).empty() && !less->has_index() &&
      !sym::ContainsDim(less, sym::DimSymbol::Internal(kPast))) {
    longest_.insert(forms_.pool().Add(all, more));
  }
  return forms_.pool().Add(own, more);
}

Expr Correspondence::Fitted(Expr e, const Facts& facts) const {
  sym::Pool& pool = forms_.pool();
  const std::vector<Expr>& parts = FitParts();
  const auto under = [&](Expr x) {
    for (const Expr part : parts) x = pool.Assume(x, part, true, facts);
    return x;
  };
  if (parts.empty() || !e->has_condition()) return e;
  Expr fitted = under(e);
  // Selects inside compared sums are simplified as well.
  sym::Pool::Substitution s;
  for (Expr select : SelectsIn(fitted)) {
    const Expr condition = under(select->args()[0]), a = select->args()[1], b = select->args()[2];
    if (condition->kind() == Kind::kInteger) {
      s.atoms[select] = under(condition->value() != 0 ? a : b);
    } else if (condition->kind() == Kind::kLe) {
      // A minimum or maximum of a and b: the condition compares a - b, or b - a, with 0.
      const Expr x = condition->args()[0], apart = pool.Sub(a, b);
      const bool other = apart == x || apart == pool.Neg(x);
      if (other && under(pool.Le(pool.Integer(0), x, facts))->is_integer(1)) s.atoms[select] = b;
    }
  }
  return s.atoms.empty() ? fitted : pool.Substitute(fitted, s, facts);
}

void Correspondence::RestOnFits() const {
  for (const Expr slots : capacities_) {
    RestOn({AssumptionKind::kCapacity, "",
            fmt::format("P + S <= {}", sym::ToString(slots, &pair_.graph())),
            AssumptionSource::kOperator, true});
  }
}

void Correspondence::RestOnOneLength() const { RestOn(SequencesOfOneLength()); }

Assumption SequencesOfOneLength() {
  return {AssumptionKind::kOneLength, "", "all sequences of a batch have as many past tokens",
          AssumptionSource::kManifest};
}

// Returns the place in its table at which a Gather, GatherND or GatherElements reads its result's
// element at `args`; empty for other nodes, and where a rank is not known.
std::vector<Expr> Correspondence::PlaceInTable(NodeId n, absl::Span<const Expr> args,
                                               const Facts& facts) const {
  const Graph& graph = pair_.graph();
  const sym::Form table = forms_.Of(graph.inputs(n)[0]), indices = forms_.Of(graph.inputs(n)[1]);
  if (!table.known_rank || !indices.known_rank) return {};
  const size_t rank = table.shape.size(), count = indices.shape.size();
  const auto index_at = [&](absl::Span<const Expr> at) {
    return forms_.At(graph.inputs(n)[1], at, facts);
  };
  std::vector<Expr> place;
  if (graph.Is(n, "GatherND")) {
    const auto batch = static_cast<size_t>(IntAttribute(graph.node(n), "batch_dims", 0));
    if (count == 0 || indices.shape.back()->kind() != Kind::kInteger) return {};
    const auto width = static_cast<size_t>(indices.shape.back()->value());
    if (batch >= count || batch + width > rank || args.size() + batch + width + 1 != rank + count) {
      return {};
    }
    place.assign(args.begin(), args.begin() + static_cast<std::ptrdiff_t>(batch));
    for (size_t k = 0; k < width; ++k) {
      std::vector<Expr> at(args.begin(), args.begin() + static_cast<std::ptrdiff_t>(count - 1));
      at.push_back(forms_.pool().Integer(static_cast<int64_t>(k)));
      place.push_back(index_at(at));
    }
    place.insert(place.end(), args.begin() + static_cast<std::ptrdiff_t>(count - 1), args.end());
    return place;
  }
  int64_t axis = IntAttribute(graph.node(n), "axis", 0);
  if (axis < 0) axis += static_cast<int64_t>(rank);
  if (axis < 0 || axis >= static_cast<int64_t>(rank)) return {};
  if (graph.Is(n, "GatherElements")) {
    if (args.size() != rank || count != rank) return {};
    place.assign(args.begin(), args.end());
    place[static_cast<size_t>(axis)] = index_at(args);
    return place;
  }
  if (!graph.Is(n, "Gather") || args.size() + 1 != rank + count) return {};
  place.assign(args.begin(), args.begin() + axis);
  place.push_back(index_at(args.subspan(static_cast<size_t>(axis), count)));
  place.insert(place.end(), args.begin() + axis + static_cast<std::ptrdiff_t>(count), args.end());
  return place;
}

// Translates what a look-up reads whose indices are shown not to be negative only after their
// translation, as for an index that is computed from the write index.
Expr Correspondence::RowOfTable(NodeId n, absl::Span<const Expr> args, Expr batch,
                                const Facts& facts) const {
  const Graph& graph = pair_.graph();
  if (n == kNoNode || !pair_.IsInAfter(n) || graph.inputs(n).size() < 2) return nullptr;
  const std::vector<Expr> place = PlaceInTable(n, args, facts);
  if (place.empty()) return nullptr;
  for (Expr index : place) {
    const Expr row = Translate(index, batch, facts);
    if (row == nullptr || !forms_.pool().ProveNonNegative(row, facts)) return nullptr;
  }
  return Translate(forms_.At(graph.inputs(n)[0], place, facts), batch, facts);
}

Expr Correspondence::Translate(Expr e, Expr batch, const Facts& facts) const {
  if (e == nullptr || batch == nullptr) return nullptr;
  sym::Pool::Substitution s;
  s.dims = sizes_;
  for (Expr load : sym::OuterLoadsOf(e)) {
    const Expr theirs = TranslateLoad(load, batch, facts);
    if (theirs == nullptr) return nullptr;
    s.atoms[load] = theirs;
  }
  const Expr substituted = forms_.pool().Substitute(e, s, facts);
  const Expr translated = Fitted(substituted, facts);
  if (translated != substituted) RestOnFits();
  return !tree_.empty() ? Absorbed(forms_.pool(), translated, facts) : translated;
}

Expr Correspondence::Extent(Expr e, Expr batch) const {
  sym::Pool& pool = forms_.pool();
  const Expr extent = Translate(e, batch, Facts{});
  // max(x, 0) is x if x is a sum of lengths, which are not negative.
  if (extent == nullptr || extent->kind() != Kind::kSelect) return extent;
  const Expr x = extent->args()[2];
  const bool clamped =
      extent->args()[1]->is_integer(0) &&
      extent->args()[0] == pool.Le(x, pool.Integer(0), Facts{}) &&
      pool.Prove(pool.Le(pool.Integer(0), x, Facts{}), Facts{}) == sym::Truth::kYes;
  return clamped ? x : extent;
}

}  // namespace kvlift
