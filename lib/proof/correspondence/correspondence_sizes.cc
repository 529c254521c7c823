// Expresses the sizes of both models in the source's terms, and checks whether they can hold
// together.
#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <optional>
#include <set>
#include <utility>

#include "fmt/format.h"
#include "proof/correspondence/correspondence.h"
#include "proof/correspondence/read_fed_rules.h"
#include "proof/reading/read_attention.h"

namespace kvlift {

using sym::Expr;
using sym::Facts;
using sym::Kind;

// Collects sizes that the source's operators require to be equal: for example the T columns of a
// mask that is added to scores of P + S keys.
void Correspondence::FindEqualExtents(const Manifest& relation,
                                      const std::vector<LengthClaim>& claims) {
  for (NodeId n = 0; n < pair_.graph().num_nodes(); ++n) {
    for (ValueId output : pair_.graph().outputs(n)) {
      if (output != kNoValue && !pair_.IsInAfter(n)) forms_.Of(output);
    }
  }
  // Numbers of sequences that follow from exact quotients are needed by the conditions below.
  FindExactQuotients();
  for (const sym::FormAssumption& assumption : forms_.assumptions()) {
    const bool extents = assumption.reason == sym::AssumptionReason::kEqualExtents ||
                         assumption.reason == sym::AssumptionReason::kBroadcast;
    if (pair_.IsInAfter(assumption.node) || !extents) continue;
    TakeAsMet(assumption.predicate, assumption.text,
              assumption.reason == sym::AssumptionReason::kBroadcast);
  }
  FindExactQuotients();
  if (past_ == nullptr || new_ == nullptr) return;
  // An Attention also runs, with a broadcast, if its mask has one sequence only.
  for (NodeId n = 0; n < pair_.graph().num_nodes(); ++n) {
    if (pair_.IsInAfter(n) || !pair_.graph().Is(n, "Attention")) continue;
    const AttentionReading reading = ReadAttention(forms_, pair_.graph().outputs(n)[0]);
    for (const auto& [x, y] : reading.equal_extents) {
      TakeAsMet(forms_.pool().Eq(x, y, Facts{}),
                fmt::format("{} == {} (broadcast, attention)", sym::ToString(x), sym::ToString(y)),
                true);
    }
  }
  for (const LengthClaim& claim : claims) {
    MakeZero(Beyond(claim), AssumptionKind::kDimension, "");
  }
  // A mask that is padded to the capacity has a column for each of the P + S tokens in the source.
  for (const ManifestInput& input : relation.inputs) {
    const ValueId mask = pair_.Before(input.name);
    const PaddedInput* padded = AsPadded(input);
    if (padded == nullptr || mask == kNoValue || padded->axis < 0 || total() == nullptr) continue;
    const sym::Form form = forms_.Of(mask);
    const auto axis = static_cast<size_t>(padded->axis);
    if (!form.known_rank || axis >= form.shape.size()) continue;
    const Expr wider = forms_.pool().Sub(form.shape[axis], total());
    MakeZero(Normal(wider, Facts{}), AssumptionKind::kMaskWidth, input.name);
  }
}

// Collects the source's names for B, which is free as P and S are.
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
    if (sequences_ == nullptr) sequences_ = sequences;
  }
}

// Finds S and the slots if the source's caches do not grow. S is the extent of the queries, and of
// output axes that an input declares; the slots are the caches' row axes.
void Correspondence::FindSizesOfSteps(const Manifest& relation) {
  const auto add = [&](Expr extent, std::set<sym::DimSymbol>* names) {
    for (const sym::DimSymbol& name : sym::DimsOf(Normal(extent, Facts{}))) {
      if (!batch_.contains(name) && (names == &slots_ || !slots_.contains(name))) {
        names->insert(name);
      }
    }
  };
  for (const ManifestCache& cache : relation.caches) {
    const auto past = pasts_.find(pair_.After(cache.input));
    if (cache.source.growing || past == pasts_.end()) continue;
    const sym::Form form = forms_.Of(past->second.before);
    if (form.known_rank && past->second.sequence < form.shape.size()) {
      add(form.shape[past->second.sequence], &slots_);
    }
  }
  if (new_ != nullptr) return;
  for (NodeId n = 0; n < pair_.graph().num_nodes(); ++n) {
    const auto outputs = pair_.graph().outputs(n);
    if (pair_.IsInAfter(n) || outputs.empty() || outputs[0] == kNoValue) continue;
    const AttentionReading reading = ReadAttention(forms_, outputs[0]);
    constexpr size_t kSequences = 0, kTokens = 2;
    if (!reading.why_not.empty() || reading.extents.extents.size() <= kTokens) continue;
    // Inputs may declare B by another name than caches do.
    const Expr sequences = reading.extents.extents[kSequences];
    if (sequences->kind() == Kind::kDim && forms_.OriginOf(sequences->dim())) {
      batch_.insert(sequences->dim());
    }
    add(reading.extents.extents[kTokens], &tokens_);
  }
  for (const ManifestOutput& output : relation.outputs) {
    const ValueId value = pair_.Before(NameInSource(output));
    // Scores and probabilities have more axes, and one of them is that of the keys.
    constexpr size_t kMostAxes = 3;
    if (IsCache(output) || value == kNoValue) continue;
    const sym::Form form = forms_.Of(value);
    if (form.shape.size() > kMostAxes) continue;
    for (Expr extent : form.shape) {
      if (extent->kind() == Kind::kDim && forms_.OriginOf(extent->dim())) add(extent, &tokens_);
    }
  }
}

// Returns true if these dimensions are B, S, P or slots, and neither all slots nor all B.
bool Correspondence::IsOfSteps(const std::vector<sym::DimSymbol>& names) const {
  const auto all = [&](const auto& is) { return std::all_of(names.begin(), names.end(), is); };
  const auto is_slots = [&](const sym::DimSymbol& name) { return slots_.contains(name); };
  const auto is_batch = [&](const sym::DimSymbol& name) { return batch_.contains(name); };
  return !all(is_slots) && !all(is_batch) && all([&](const sym::DimSymbol& name) {
    return is_slots(name) || is_batch(name) || tokens_.contains(name) || IsFree(name);
  });
}

namespace {

// Returns the single term of a product of a number and dimensions; nullopt for other expressions.
std::optional<sym::Term> ProductIn(Expr e) {
  if (e->kind() == Kind::kInteger) return sym::Term{e->value(), {}};
  if (e->kind() == Kind::kDim) return sym::Term{1, {e}};
  if (e->kind() != Kind::kSum || e->terms().size() != 1) return std::nullopt;
  return e->terms()[0];
}

// Returns the expression q with q * count = e; null if there is none.
Expr Quotient(sym::Pool& pool, Expr e, Expr count) {
  const sym::Term divisor = *ProductIn(count);
  if (e->kind() != Kind::kSum) return nullptr;
  Expr quotient = pool.Integer(0);
  for (const sym::Term& term : e->terms()) {
    if (term.coefficient % divisor.coefficient != 0) return nullptr;
    sym::Monomial atoms = term.atoms;
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

// Returns e divided by those factors of b, which is not 0, that all its terms have.
Expr WithoutFactors(sym::Pool& pool, Expr e, Expr b) {
  const auto product = ProductIn(b);
  if (!product) return e;
  for (Expr factor : product->atoms) {
    if (factor->kind() != Kind::kDim) continue;
    if (const Expr rest = Quotient(pool, e, factor)) e = rest;
  }
  return e;
}

}  // namespace

// If a == b * (a div b) and a div b == c, then a == b * c.
void Correspondence::FindExactQuotients() {
  sym::Pool& pool = forms_.pool();
  // Returns true if e is a positive multiple of numbers of sequences, and hence at least 1.
  const auto is_count = [&](Expr e) {
    const auto term = ProductIn(e);
    return term && term->coefficient >= 1 &&
           std::all_of(term->atoms.begin(), term->atoms.end(), [&](Expr atom) {
             return atom->kind() == Kind::kDim && batch_.contains(atom->dim());
           });
  };
  std::vector<Expr> zero;
  for (const sym::FormAssumption& assumption : forms_.assumptions()) {
    if (pair_.IsInAfter(assumption.node) || assumption.predicate->kind() != Kind::kEq) continue;
    zero.push_back(Normal(assumption.predicate->args()[0], Facts{}));
  }
  for (Expr e : zero) {
    for (Expr division : sym::DivisionsOf(e)) {
      // The quotient, if e is the division minus the quotient.
      const Expr number = pool.Sub(division, e);
      if (!is_count(number)) continue;
      const Expr a = division->args()[0], b = division->args()[1];
      const Expr rest = pool.Sub(a, pool.Mul(b, division));
      const bool exact = std::any_of(zero.begin(), zero.end(), [&](Expr other) {
        return other == rest || other == pool.Neg(rest);
      });
      if (!exact) continue;
      const Expr apart = pool.Sub(a, pool.Mul(b, number));
      const Expr one = Quotient(pool, apart, number);
      MakeZero(WithoutFactors(pool, one != nullptr ? one : apart, b), AssumptionKind::kDimension,
               "");
    }
  }
}

bool Correspondence::IsFree(const sym::DimSymbol& name) const {
  return name == sym::DimSymbol::Internal(kPast) || name == sym::DimSymbol::Internal(kLeft) ||
         (new_ != nullptr && sym::ContainsDim(new_, name));
}

// Assumes that sizes meet a condition of the source's operators: they are equal, or one is 1 and is
// broadcast.
void Correspondence::TakeAsMet(Expr condition, const std::string& text, bool broadcast) {
  conditions_.push_back({condition, text, broadcast});
  for (Expr part : sym::ConjunctsOf(Normal(condition, Facts{}))) {
    if (part->kind() != Kind::kEq || !sym::LoadsOf(part).empty()) continue;
    const auto names = sym::DimsOf(part);
    const auto is_batch = [&](const sym::DimSymbol& name) { return batch_.contains(name); };
    const bool batches = names.size() > 1 && std::all_of(names.begin(), names.end(), is_batch);
    const std::set<sym::DimSymbol> none;
    const Expr difference = part->args()[0];
    // One token could also be broadcast over the slots. Later operators would then see another
    // size, so this must be excluded.
    if (broadcast && !names.empty() && IsOfSteps(names)) RefuseUnlessMet(part, text);
    // The host keeps to the sizes that inputs declare. A size that is computed may differ where B
    // or S is 1 and is broadcast.
    const bool computed = std::any_of(names.begin(), names.end(), [&](const sym::DimSymbol& name) {
      return !IsFree(name) && !is_batch(name) && !forms_.OriginOf(name);
    });
    const bool keys = sym::ContainsDim(part, sym::DimSymbol::Internal(kPast));
    if (broadcast && computed && names.size() > 1 && !keys) continue;
    if (MakeZero(difference, AssumptionKind::kDimension, "", batches ? none : batch_)) continue;
    const bool few = std::all_of(names.begin(), names.end(), [&](const sym::DimSymbol& name) {
      return IsFree(name) || is_batch(name);
    });
    if (!few) MakeZero(difference, AssumptionKind::kDimension, "");
  }
}

// B, P and S are free. If a condition requires expressions of them to be equal, the operator really
// broadcasts, and the forms hold for a few steps only. A size that depends on data is checked by
// the operator, unless the operator broadcasts and either size is 1.
void Correspondence::FindUnmet(const SourceCase& steps) {
  for (const auto& [condition, text, broadcast] : conditions_) {
    for (Expr part : sym::ConjunctsOf(Normal(condition, Facts{}))) {
      if (broadcast || sym::LoadsOf(part).empty()) RefuseUnlessMet(part, text);
    }
  }
  if (steps.window == SourceCase::Window::kNone) FindUnmetByFirstStep(steps);
}

// A bound that P and S alone decide, such as S <= P, restricts the steps as well if the first step
// does not keep it.
void Correspondence::FindUnmetByFirstStep(const SourceCase& steps) {
  sym::Pool& pool = forms_.pool();
  sym::Pool::Substitution first;
  const int64_t past = steps.past == SourceCase::Past::kSome ? 1 : 0;
  first.dims[sym::DimSymbol::Internal(kPast)] = pool.Integer(past);
  if (new_ != nullptr && new_->kind() == Kind::kDim) first.dims[new_->dim()] = pool.Integer(1);
  for (const sym::FormAssumption& assumption : forms_.assumptions()) {
    if (pair_.IsInAfter(assumption.node)) continue;
    if (assumption.reason != sym::AssumptionReason::kInside) continue;
    if (assumption.predicate->has_index()) continue;
    for (Expr part : sym::ConjunctsOf(Normal(assumption.predicate, Facts{}))) {
      const bool kept = !pool.Substitute(part, first, Facts{})->is_integer(0);
      if (!kept) RefuseUnlessMet(part, assumption.text);
    }
  }
}

void Correspondence::RefuseUnlessMet(Expr part, const std::string& text) {
  const bool met = part->is_integer(1) || forms_.pool().Prove(part, Facts{}) == sym::Truth::kYes;
  if (met || !unmet_.empty()) return;
  unmet_ = fmt::format("the source is read for steps with {} only", text);
}

// Assumes that the difference of two sizes is 0, by giving one dimension in it a value. Returns
// false if no dimension can be given one. Dimensions in `kept` are not changed.
bool Correspondence::MakeZero(Expr difference, AssumptionKind kind, const std::string& subject,
                              const std::set<sym::DimSymbol>& kept) {
  sym::Pool& pool = forms_.pool();
  if (difference == nullptr || !sym::LoadsOf(difference).empty()) return false;
  for (const sym::DimSymbol& name : sym::DimsOf(difference)) {
    if (IsFree(name) || kept.contains(name)) continue;
    const auto linear = sym::LinearIn(pool, difference, pool.Dim(name));
    if (!linear || std::abs(linear->coefficient) != 1) continue;
    const Expr size = linear->coefficient == 1 ? pool.Neg(linear->rest) : linear->rest;
    // Sizes that were given in terms of this dimension are given by its value.
    sym::Pool::Substitution known;
    known.dims[name] = size;
    for (auto& [other, own] : sizes_) own = pool.Substitute(own, known, Facts{});
    sizes_[name] = size;
    // A size that no input declares is computed by an operator, which refuses others.
    const bool host = forms_.OriginOf(name).has_value();
    const std::string text = fmt::format("{} = {}", name.name(), sym::ToString(size));
    assumptions_.Add({kind, subject.empty() ? name.name() : subject, text,
                      host ? AssumptionSource::kHost : AssumptionSource::kOperator, !host});
    if (auto fed = FedEqualityOf(pair_, difference, text); fed && host) {
      equal_sizes_.conditions.push_back(*std::move(fed));
    }
    return true;
  }
  return false;
}

namespace {

// The numbers that sizes are tried with.
constexpr int64_t kSmallSizes[] = {1, 2, 3, 0, 5, 8, 17, 64, 700, 5000, 140000};
constexpr size_t kMostFree = 6;  // sizes that are varied independently
constexpr int kMostSizesTried = 20000;

}  // namespace

// Returns true if the conditions hold for one choice of the free sizes. `choice` holds positions in
// kSmallSizes; free sizes beyond its end take the last one.
bool Correspondence::Holds(const std::vector<Expr>& conditions,
                           const std::vector<sym::DimSymbol>& free,
                           const std::vector<size_t>& choice) const {
  sym::Pool& pool = forms_.pool();
  sym::Pool::Substitution values;
  for (size_t k = 0; k < free.size(); ++k) {
    const size_t own = choice[std::min(k, choice.size() - 1)];
    values.dims[free[k]] = pool.Integer(kSmallSizes[own]);
  }
  // A size may be given in terms of others that are given in turn.
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

// Tries small numbers for the free sizes until all premises hold.
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
  for (int tried = 0; tried < kMostSizesTried; ++tried) {
    if (Holds(conditions, free, choice)) return "";
    size_t k = 0;
    while (k < choice.size() && ++choice[k] == std::size(kSmallSizes)) choice[k++] = 0;
    if (k == choice.size()) break;
  }
  return "what sizes are taken to be contradicts itself: no small sizes are so";
}

}  // namespace kvlift
