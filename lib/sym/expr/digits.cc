#include "sym/expr/digits.h"

#include <algorithm>

#include "sym/expr/pool_impl.h"

namespace kvlift::sym::internal {
namespace {

// Returns b / a if a divides b without remainder, else null.
Expr ExactQuotient(Pool& pool, Expr b, Expr a) {
  const Expr q = pool.FloorDiv(b, a, Facts{});
  return pool.Mul(q, a) == b && q->kind() != Kind::kFloorDiv ? q : nullptr;
}

// Removes and returns the stride that divides all others; null if there is none.
Expr TakeSmallest(Pool& pool, std::vector<Expr>* strides) {
  for (auto it = strides->begin(); it != strides->end(); ++it) {
    const bool divides = std::all_of(strides->begin(), strides->end(), [&](Expr other) {
      return ExactQuotient(pool, other, *it) != nullptr;
    });
    if (!divides) continue;
    const Expr result = *it;
    strides->erase(it);
    return result;
  }
  return nullptr;
}

}  // namespace

std::vector<Digit> DigitsOf(Pool& pool, int axis, Expr extent, Expr index,
                            absl::Span<const Expr> readers) {
  const Expr one = pool.Integer(1);
  const std::vector<Digit> whole{{axis, one, extent}};
  std::vector<Expr> strides;
  for (Expr reader : readers) {
    for (Expr division : DivisionsOf(reader)) {
      const Expr d = division->args()[1];
      if (division->args()[0] != index) continue;
      if (std::find(strides.begin(), strides.end(), d) == strides.end()) strides.push_back(d);
    }
  }
  if (strides.empty()) return whole;
  std::vector<Digit> digits;
  Expr stride = one;
  while (!strides.empty()) {
    const Expr next = TakeSmallest(pool, &strides);
    const Expr m = next == nullptr ? nullptr : ExactQuotient(pool, next, stride);
    if (m == nullptr) return whole;
    digits.push_back({axis, stride, m});
    stride = next;
  }
  const Expr m = ExactQuotient(pool, extent, stride);
  if (m == nullptr) return whole;
  digits.push_back({axis, stride, m});
  std::reverse(digits.begin(), digits.end());
  return digits;
}

Expr IndexFromDigits(Pool& pool, absl::Span<const Digit> digits, int axis,
                     absl::Span<const Expr> index_of_digit) {
  Expr sum = pool.Integer(0);
  for (size_t k = 0; k < digits.size(); ++k) {
    if (digits[k].axis == axis) sum = pool.Add(sum, pool.Mul(digits[k].stride, index_of_digit[k]));
  }
  return sum;
}

Expr DigitOfIndex(Pool& pool, absl::Span<const Digit> digits, size_t k, Expr index,
                  const Facts& facts) {
  const Expr place = pool.FloorDiv(index, digits[k].stride, facts);
  const bool highest = k == 0 || digits[k - 1].axis != digits[k].axis;
  return highest ? place : pool.Mod(place, digits[k].extent, facts);
}

std::optional<Quotient> DivideTerms(Pool& pool, Expr e, Expr stride) {
  if (e->kind() == Kind::kSelect) {
    const auto a = DivideTerms(pool, e->args()[1], stride);
    const auto b = a ? DivideTerms(pool, e->args()[2], stride) : std::nullopt;
    if (!b) return std::nullopt;
    const Expr condition = e->args()[0];
    return Quotient{pool.Select(condition, a->q, b->q), pool.Select(condition, a->rest, b->rest)};
  }
  const std::vector<Term> unit = TermsOf(stride);
  if (unit.size() != 1 || unit[0].coefficient <= 0) return std::nullopt;
  Quotient result{pool.Integer(0), pool.Integer(0)};
  for (const Term& term : TermsOf(e)) {
    Monomial left = term.atoms;
    bool divides = term.coefficient % unit[0].coefficient == 0;
    for (Expr atom : unit[0].atoms) {
      const auto it = std::find(left.begin(), left.end(), atom);
      if (it == left.end()) {
        divides = false;
        break;
      }
      left.erase(it);
    }
    Expr product =
        pool.Integer(divides ? term.coefficient / unit[0].coefficient : term.coefficient);
    for (Expr atom : divides ? left : term.atoms) product = pool.Mul(product, atom);
    Expr* side = divides ? &result.q : &result.rest;
    *side = pool.Add(*side, product);
  }
  return result;
}

}  // namespace kvlift::sym::internal
