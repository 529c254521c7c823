#include "rewrite/recognise/attention/visibility.h"

namespace kvlift {
namespace {

using sym::Expr;

// Returns true if `part` is t <= start + s. A start of two cases, such as max(start, 0), splits the
// predicate by the same condition.
bool IsCausal(sym::Pool& pool, Expr part, Expr start, bool one_token) {
  if (start->kind() == sym::Kind::kSelect) {
    const auto cases = SplitBy(pool, part, start->args()[0]);
    return cases && IsCausal(pool, cases->first, start->args()[1], one_token) &&
           IsCausal(pool, cases->second, start->args()[2], one_token);
  }
  const Expr own = one_token ? start : pool.Add(start, pool.Index(2));
  return part == pool.Le(pool.Index(3), own, sym::Facts{});
}

}  // namespace

std::optional<std::pair<Expr, Expr>> SplitBy(sym::Pool& pool, Expr part, Expr condition) {
  const Expr opposite = pool.Not(condition);
  Expr yes = nullptr, no = nullptr;
  for (Expr denied : sym::ConjunctsOf(pool.Not(part))) {
    Expr rest = pool.True();
    Expr* side = nullptr;
    for (Expr conjunct : sym::ConjunctsOf(pool.Not(denied))) {
      if (conjunct == condition) {
        side = &yes;
      } else if (conjunct == opposite) {
        side = &no;
      } else {
        rest = pool.And(rest, conjunct);
      }
    }
    if (side == nullptr || *side != nullptr) return std::nullopt;
    *side = rest;
  }
  if (yes == nullptr || no == nullptr) return std::nullopt;
  return std::pair(yes, no);
}

Visibility ReadVisibility(sym::Forms& forms, Expr keep, Expr start, bool one_token) {
  sym::Pool& pool = forms.pool();
  Visibility v;
  v.rest = pool.True();
  for (Expr part : sym::ConjunctsOf(keep)) {
    if (IsCausal(pool, part, start, one_token)) {
      v.causal = true;
    } else {
      v.rest = pool.And(v.rest, part);
    }
  }
  return v;
}

std::optional<int64_t> TokensBack(sym::Pool& pool, Expr part, Expr start, bool one_token) {
  if (start->kind() == sym::Kind::kSelect) {
    const auto cases = SplitBy(pool, part, start->args()[0]);
    if (!cases) return std::nullopt;
    const auto back = TokensBack(pool, cases->first, start->args()[1], one_token);
    const auto other = TokensBack(pool, cases->second, start->args()[2], one_token);
    return back == other ? back : std::nullopt;
  }
  if (part->kind() != sym::Kind::kLe) return std::nullopt;
  const Expr own = one_token ? start : pool.Add(start, pool.Index(2));
  const Expr less = pool.Sub(part->args()[0], pool.Sub(own, pool.Index(3)));
  if (less->kind() != sym::Kind::kInteger) return std::nullopt;
  return -less->value();
}

}  // namespace kvlift
