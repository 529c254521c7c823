#include "sym/expr/clipped_extents.h"

#include <algorithm>
#include <cstdlib>

namespace kvlift::sym::internal {
namespace {

// Adds the value of a symbol or a load for which e is 0 to the substitution. Returns false if e has
// none with the coefficient 1 or -1 outside of other terms.
bool Solve(Pool& pool, Expr e, Pool::Substitution* s) {
  const auto value_of = [&](Expr atom) -> Expr {
    const auto linear = LinearIn(pool, e, atom);
    if (!linear || (linear->coefficient != 1 && linear->coefficient != -1)) return nullptr;
    return linear->coefficient == 1 ? pool.Neg(linear->rest) : linear->rest;
  };
  for (const DimSymbol& dim : DimsOf(e)) {
    const Expr value = value_of(pool.Dim(dim));
    if (value == nullptr || ContainsDim(value, dim)) continue;
    s->dims[dim] = value;
    return true;
  }
  for (const Expr load : OuterLoadsOf(e)) {
    const Expr value = value_of(load);
    if (value == nullptr) continue;
    s->atoms[load] = value;
    return true;
  }
  return false;
}

// Returns true if all terms of e but the number have one sign: e <= 0 bounds a sum by a number.
bool IsWithNumber(Expr e) {
  if (e->kind() != Kind::kSum) return e->kind() != Kind::kInteger;
  bool positive = false, negative = false;
  for (const Term& term : e->terms()) {
    positive = positive || (!term.atoms.empty() && term.coefficient > 0);
    negative = negative || (!term.atoms.empty() && term.coefficient < 0);
  }
  return positive != negative;
}

// Returns the number in a sum.
int64_t NumberOf(Expr e) {
  int64_t number = 0;
  for (const Term& term : e->terms()) {
    if (term.atoms.empty()) number += term.coefficient;
  }
  return number;
}

// Adds the inequalities that decide between branches of e.
void AddConditions(Expr e, std::vector<Expr>* conditions) {
  if (e->kind() == Kind::kSum) {
    for (const Term& term : e->terms()) {
      for (const Expr atom : term.atoms) AddConditions(atom, conditions);
    }
  }
  if (e->kind() != Kind::kSelect) return;
  for (const Expr part : ConjunctsOf(e->args()[0])) {
    if (part->kind() == Kind::kLe) conditions->push_back(part);
  }
  for (const Expr branch : e->args().subspan(1)) AddConditions(branch, conditions);
}

}  // namespace

void ClippedExtents::Take(Expr predicate) {
  constexpr size_t kMost = 64;
  if (predicate->kind() != Kind::kLe || predicate->has_index() || taken_.size() >= kMost) return;
  if (!IsWithNumber(predicate->args()[0])) return;
  if (std::find(taken_.begin(), taken_.end(), predicate) == taken_.end()) {
    taken_.push_back(predicate);
  }
}

Expr ClippedExtents::BoundOfBroadcast(Expr x, Expr y) {
  if (x->kind() != Kind::kSelect || y->kind() == Kind::kInteger) return nullptr;
  for (const Expr most : x->args().subspan(1)) {
    if (most->kind() != Kind::kInteger || most->value() < 2) continue;
    // Which branch stands for y == c depends on the order of the operands.
    if (pool_.Min(most, y, Facts{}) != x && pool_.Min(y, most, Facts{}) != x) continue;
    const Expr bound = pool_.Le(y, most, Facts{});
    const bool known = std::find(taken_.begin(), taken_.end(), bound) != taken_.end();
    return known || bound->kind() != Kind::kLe ? nullptr : bound;
  }
  return nullptr;
}

Expr ClippedExtents::BoundOfEqual(Expr a, Expr b) {
  std::vector<Expr> conditions;
  AddConditions(a, &conditions);
  AddConditions(b, &conditions);
  for (const Expr condition : conditions) {
    const Expr opposite = pool_.Le(pool_.Integer(0), condition->args()[0], Facts{});
    for (const Expr bound : {opposite, condition}) {
      ClippedExtents bounded(*this);
      bounded.Take(bound);
      if (bounded.taken_.size() == taken_.size()) continue;
      if (bounded.Simplified(a) != bounded.Simplified(b)) continue;
      if (DifferOutside(bound, a, b)) return bound;
    }
  }
  return nullptr;
}

bool ClippedExtents::DifferOutside(Expr bound, Expr a, Expr b) {
  constexpr size_t kMostVariables = 4;
  std::vector<DimSymbol> dims = DimsOf(pool_.Add(a, b));
  const std::vector<Expr> loads = LoadsOf(pool_.Add(a, b));
  const size_t count = dims.size() + loads.size();
  if (count == 0 || count > kMostVariables) return false;
  const int64_t end = std::abs(NumberOf(bound->args()[0]));
  const std::vector<int64_t> values = {1, 3, end, end + 1, 2 * end + 3};
  std::vector<size_t> at(count, 0);
  while (true) {
    Pool::Substitution s;
    for (size_t k = 0; k < count; ++k) {
      const Expr value = pool_.Integer(std::max<int64_t>(1, values[at[k]]));
      if (k < dims.size()) {
        s.dims[dims[k]] = value;
      } else {
        s.atoms[loads[k - dims.size()]] = value;
      }
    }
    const bool inside = pool_.Substitute(bound, s, Facts{})->is_integer(1);
    if (!inside && pool_.Substitute(a, s, Facts{}) == pool_.Substitute(b, s, Facts{})) return false;
    size_t k = 0;
    while (k < count && ++at[k] == values.size()) at[k++] = 0;
    if (k == count) return true;
  }
}

// Inequalities g <= 0 and h <= 0 exclude each other if g + h is positive. If g + h is only known
// not to be negative, both hold for g = h = 0 alone, where the branches may be equal.
bool ClippedExtents::Excludes(Expr h, Expr g, Expr then, Expr otherwise) {
  const Expr sum = pool_.Add(g, h);
  if (pool_.ProveNonNegative(pool_.Sub(sum, pool_.Integer(1)), Facts{})) return true;
  if (!pool_.ProveNonNegative(sum, Facts{})) return false;
  const auto with_zero = [&](Expr zero, Expr e) {
    Pool::Substitution s;
    return Solve(pool_, zero, &s) ? pool_.Substitute(e, s, Facts{}) : e;
  };
  const Expr difference = with_zero(sum, pool_.Sub(then, otherwise));
  return with_zero(with_zero(sum, h), difference)->is_integer(0);
}

bool ClippedExtents::IsExcluded(Expr g, Expr then, Expr otherwise) {
  return Excludes(pool_.Integer(0), g, then, otherwise) ||
         std::any_of(taken_.begin(), taken_.end(),
                     [&](Expr bound) { return Excludes(bound->args()[0], g, then, otherwise); });
}

Expr ClippedExtents::Sum(Expr e) {
  Expr sum = pool_.Integer(0);
  bool changed = false;
  for (const Term& term : e->terms()) {
    Expr product = pool_.Integer(term.coefficient);
    for (const Expr atom : term.atoms) {
      const Expr simple = Simplified(atom);
      changed = changed || simple != atom;
      product = pool_.Mul(product, simple);
    }
    sum = pool_.Add(sum, product);
  }
  return changed ? sum : e;
}

Expr ClippedExtents::Select(Expr e) {
  const Expr then = Simplified(e->args()[1]), otherwise = Simplified(e->args()[2]);
  const Expr condition = Simplified(e->args()[0]);
  Expr rest = pool_.True();
  for (const Expr part : ConjunctsOf(condition)) {
    const bool negated = part->kind() == Kind::kNot;
    const Expr inequality = negated ? part->args()[0] : part;
    if (inequality->kind() == Kind::kLe) {
      const Expr g = inequality->args()[0], complement = pool_.Sub(pool_.Integer(1), g);
      if (IsExcluded(negated ? complement : g, then, otherwise)) return otherwise;
      if (IsExcluded(negated ? g : complement, then, otherwise)) continue;
    }
    rest = pool_.And(rest, part);
  }
  const bool same = rest == e->args()[0] && then == e->args()[1] && otherwise == e->args()[2];
  return same ? e : pool_.Select(rest, then, otherwise);
}

Expr ClippedExtents::Simplified(Expr e) {
  if (taken_.empty()) return e;
  switch (e->kind()) {
    case Kind::kSum:
      return Sum(e);
    case Kind::kSelect:
      return Select(e);
    case Kind::kLe: {
      const Expr g = Simplified(e->args()[0]);
      return g == e->args()[0] ? e : pool_.Le(g, pool_.Integer(0), Facts{});
    }
    case Kind::kNot: {
      const Expr p = Simplified(e->args()[0]);
      return p == e->args()[0] ? e : pool_.Not(p);
    }
    case Kind::kAnd: {
      Expr all = pool_.True();
      for (const Expr part : e->args()) all = pool_.And(all, Simplified(part));
      return all;
    }
    default:
      return e;
  }
}

}  // namespace kvlift::sym::internal
