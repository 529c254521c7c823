// Merges two conditional terms of a sum into one: see Pool::Add and Pool::Sub.
#include <algorithm>
#include <optional>

#include "sym/expr/expr.h"
#include "sym/expr/pool_impl.h"

namespace kvlift::sym {

namespace {

// Returns u of max(u, 0); null for another expression.
Expr PositivePart(Expr e) {
  if (e->kind() != Kind::kSelect || e->args()[0]->kind() != Kind::kLe) return nullptr;
  const Expr u = e->args()[2];
  return e->args()[0]->args()[0] == u && e->args()[1]->is_integer(0) ? u : nullptr;
}

}  // namespace

// Returns max(v, 0) for x + max(v - x, 0) with x = max(u, 0) and u <= v: the first rows of a tensor
// are cut off, and then those of what is left. Returns null for other sums.
Expr Pool::SumOfMaxima(Expr x, Expr y) {
  const Expr u = PositivePart(x);
  const bool cuts = u != nullptr && y->kind() == Kind::kSelect && y->args()[1]->is_integer(0) &&
                    y->args()[0]->kind() == Kind::kLe && y->args()[2]->kind() == Kind::kSum;
  if (!cuts) return nullptr;
  const Expr rest = y->args()[2];
  const auto terms = rest->terms();
  const bool has_x = std::any_of(terms.begin(), terms.end(), [&](const Term& term) {
    return term.coefficient == -1 && term.atoms.size() == 1 && term.atoms[0] == x;
  });
  if (!has_x) return nullptr;
  const Expr v = impl_->Combine(rest, x, 1);
  // Where v <= 0, x is 0, so the second part may be chosen by v as well.
  const Expr chosen = y->args()[0]->args()[0];
  if (chosen != rest && chosen != v) return nullptr;
  if (!ProveNonNegative(impl_->Combine(v, u, -1), Facts{})) return nullptr;
  return Max(v, Integer(0), Facts{});
}

// The difference of two selects of one condition is a number without a condition if both branches
// give it: a clamped end less a clamped start is the length between both. Two maxima may be one.
Expr Pool::WithoutSelectsThatCancel(Expr sum) {
  if (sum->kind() != Kind::kSum) return sum;
  const auto is_select = [](const Term& term) {
    return term.atoms.size() == 1 && term.atoms[0]->kind() == Kind::kSelect;
  };
  const auto terms = sum->terms();
  for (size_t i = 0; i < terms.size(); ++i) {
    if (!is_select(terms[i])) continue;
    for (size_t j = i + 1; j < terms.size(); ++j) {
      if (!is_select(terms[j])) continue;
      const Expr x = terms[i].atoms[0], y = terms[j].atoms[0];
      if (terms[i].coefficient == terms[j].coefficient) {
        const int64_t times = terms[i].coefficient;
        Expr both = SumOfMaxima(x, y);
        if (both == nullptr) both = SumOfMaxima(y, x);
        if (both == nullptr) continue;
        const Expr rest = impl_->Combine(impl_->Combine(sum, x, -times), y, -times);
        return Add(rest, Mul(Integer(times), both));
      }
      const bool opposite = (terms[i].coefficient < 0) != (terms[j].coefficient < 0);
      if (!opposite || x->args()[0] != y->args()[0]) continue;
      const auto branch = [&](int k) {
        return Add(Mul(Integer(terms[i].coefficient), x->args()[k]),
                   Mul(Integer(terms[j].coefficient), y->args()[k]));
      };
      const Expr then = branch(1);
      if (then != branch(2)) continue;
      Expr rest = impl_->Combine(sum, x, -terms[i].coefficient);
      rest = impl_->Combine(rest, y, -terms[j].coefficient);
      return Add(rest, then);
    }
  }
  return sum;
}

std::optional<AtMost> AtMostIn(Pool& pool, Expr e) {
  const auto is_size = [](Expr n) { return n->kind() == Kind::kInteger && n->value() >= 1; };
  if (e->kind() == Kind::kSelect) {
    for (const int k : {1, 2}) {
      const Expr most = e->args()[k], length = e->args()[3 - k];
      if (is_size(most) && e == pool.Min(length, most, Facts{})) {
        return AtMost{length, most->value()};
      }
    }
  }
  if (e->kind() != Kind::kSum) return std::nullopt;
  for (const Term& term : e->terms()) {
    if (term.coefficient != -1 || term.atoms.size() != 1) continue;
    const Expr cut = term.atoms[0], length = pool.Add(e, cut);
    if (cut->kind() != Kind::kSelect) continue;
    for (const int k : {1, 2}) {
      const Expr most = pool.Sub(length, cut->args()[k]);
      if (!is_size(most)) continue;
      if (cut == pool.Max(pool.Sub(length, most), pool.Integer(0), Facts{})) {
        return AtMost{length, most->value()};
      }
    }
  }
  return std::nullopt;
}

}  // namespace kvlift::sym
