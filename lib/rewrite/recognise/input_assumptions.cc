#include "rewrite/recognise/input_assumptions.h"

#include <algorithm>
#include <optional>

#include "absl/container/flat_hash_map.h"

namespace kvlift {
namespace {

using sym::Expr;
using sym::Kind;

// Returns true if the condition is about sizes only and holds if all of them but pasts are at
// least 1.
bool HoldsForEveryStep(sym::Pool& pool, Expr predicate, const std::vector<sym::DimSymbol>& pasts) {
  if (!sym::SourcesOf(predicate).empty()) return false;
  sym::Pool::Substitution s;
  for (const sym::DimSymbol& dim : sym::DimsOf(predicate)) {
    if (std::find(pasts.begin(), pasts.end(), dim) != pasts.end()) continue;
    s.dims[dim] = pool.Internal("at least one " + dim.name(), 1);
  }
  return pool.Prove(pool.Substitute(predicate, s, {}), {}) == sym::Truth::kYes;
}

// A source that counts up along an axis.
struct Counting {
  ValueId source;
  int axis;
};

// Reads "x[.., 0, ..] + i_k == x[.., i_k, ..]"; nullopt for other predicates.
std::optional<Counting> ReadCounting(Expr predicate) {
  if (predicate->kind() != Kind::kEq || predicate->args()[0]->kind() != Kind::kSum) {
    return std::nullopt;
  }
  Expr first = nullptr, second = nullptr, index = nullptr;
  for (const sym::Term& term : predicate->args()[0]->terms()) {
    if (term.atoms.size() != 1 || (term.coefficient != 1 && term.coefficient != -1)) {
      return std::nullopt;
    }
    const Expr atom = term.atoms[0];
    if (atom->kind() == Kind::kIndex && index == nullptr) {
      index = atom;
    } else if (atom->kind() == Kind::kLoad && second == nullptr) {
      (first == nullptr ? first : second) = atom;
    } else {
      return std::nullopt;
    }
  }
  if (index == nullptr || second == nullptr || first->source() != second->source()) {
    return std::nullopt;
  }
  std::optional<Counting> found;
  for (size_t k = 0; k < first->args().size(); ++k) {
    const Expr a = first->args()[k], b = second->args()[k];
    if (a == b) continue;
    const bool pair = (a->is_integer(0) && b == index) || (b->is_integer(0) && a == index);
    if (!pair || found) return std::nullopt;
    found = Counting{first->source(), static_cast<int>(k)};
  }
  return found;
}

// Removes inequalities that follow from others.
void DropImplied(sym::Pool& pool, std::vector<sym::FormAssumption>* all) {
  const auto follows = [&](Expr p, Expr q) {
    return p->kind() == Kind::kLe && q->kind() == Kind::kLe &&
           pool.ProveNonNegative(pool.Sub(q->args()[0], p->args()[0]), {});
  };
  for (size_t k = all->size(); k-- > 0;) {
    const Expr own = (*all)[k].predicate;
    const bool implied =
        std::any_of(all->begin(), all->end(), [&](const sym::FormAssumption& other) {
          return other.predicate != own && follows(own, other.predicate);
        });
    if (implied) all->erase(all->begin() + static_cast<std::ptrdiff_t>(k));
  }
}

// Returns true for conditions that KV301 includes: 0 <= start, or S <= M, of some cache.
bool SaysStartInside(const Analysis& a, Expr predicate) {
  sym::Pool& pool = a.forms->pool();
  return std::any_of(a.updates.begin(), a.updates.end(), [&](const CacheUpdate& update) {
    const Expr capacity = a.forms->Of(update.pair.past).shape[update.axis];
    return predicate == pool.Le(pool.Integer(0), update.write_index(pool), {}) ||
           (!update.grows() && predicate == pool.Le(update.new_length, capacity, {}));
  });
}

// Returns the symbols of lengths that may be 0.
std::vector<sym::DimSymbol> PastsOf(const Analysis& a) {
  std::vector<sym::DimSymbol> pasts;
  for (const CacheUpdate& update : a.updates) {
    if (!update.grows()) continue;
    const Expr length = a.forms->Of(update.pair.past).shape[update.axis];
    if (length->kind() == Kind::kDim) pasts.push_back(length->dim());
  }
  return pasts;
}

}  // namespace

std::vector<sym::FormAssumption> HostAssumptions(const Analysis& a) {
  sym::Forms& forms = *a.forms;
  const std::vector<sym::DimSymbol> pasts = PastsOf(a);
  std::vector<sym::FormAssumption> found;
  for (const sym::FormAssumption& assumption : forms.assumptions()) {
    if (assumption.reason == sym::AssumptionReason::kEqualExtents) continue;
    // The host keeps declared sizes equal, such as the width of a mask and the number of keys.
    const bool declared = sym::SourcesOf(assumption.predicate).empty();
    if (assumption.reason == sym::AssumptionReason::kBroadcast && declared) continue;
    if (HoldsForEveryStep(forms.pool(), assumption.predicate, pasts)) continue;
    found.push_back(assumption);
  }
  DropImplied(forms.pool(), &found);
  std::stable_sort(found.begin(), found.end(),
                   [](const auto& x, const auto& y) { return x.node < y.node; });
  std::erase_if(found, [&](const auto& x) { return SaysStartInside(a, x.predicate); });
  return found;
}

Expr CountedUp(sym::Forms& forms, Expr e) {
  absl::flat_hash_map<ValueId, int> counting;
  for (const sym::FormAssumption& assumption : forms.assumptions()) {
    if (assumption.predicate == nullptr) continue;
    if (const auto read = ReadCounting(assumption.predicate)) counting[read->source] = read->axis;
  }
  if (counting.empty()) return e;
  sym::Pool& pool = forms.pool();
  sym::Pool::Substitution s;
  for (Expr load : sym::LoadsOf(e)) {
    const auto found = counting.find(load->source());
    if (found == counting.end()) continue;
    const int axis = found->second;
    std::vector<Expr> args(load->args().begin(), load->args().end());
    const Expr distance = args[axis];
    if (distance->is_integer(0)) continue;
    args[axis] = pool.Integer(0);
    s.atoms[load] = pool.Add(pool.Load(load->source(), args), distance);
  }
  return s.atoms.empty() ? e : pool.Substitute(e, s, {});
}

}  // namespace kvlift
