#include "rewrite/recognise/attention/visibility.h"

namespace kvlift {

using sym::Expr;

Visibility ReadVisibility(sym::Forms& forms, Expr keep, Expr start, bool one_token) {
  sym::Pool& pool = forms.pool();
  Visibility v;
  v.rest = pool.True();
  const Expr causal =
      pool.Le(pool.Index(3), one_token ? start : pool.Add(start, pool.Index(2)), sym::Facts{});
  for (Expr part : sym::ConjunctsOf(keep)) {
    if (part == causal) {
      v.causal = true;
    } else {
      v.rest = pool.And(v.rest, part);
    }
  }
  return v;
}

std::optional<int64_t> TokensBack(sym::Pool& pool, Expr part, Expr start, bool one_token) {
  if (part->kind() != sym::Kind::kLe) return std::nullopt;
  const Expr own = one_token ? start : pool.Add(start, pool.Index(2));
  const Expr less = pool.Sub(part->args()[0], pool.Sub(own, pool.Index(3)));
  if (less->kind() != sym::Kind::kInteger) return std::nullopt;
  return -less->value();
}

}  // namespace kvlift
