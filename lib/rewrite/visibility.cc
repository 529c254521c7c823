#include "rewrite/visibility.h"

namespace kvlift {

using sym::Expr;

Visibility ReadVisibility(sym::Forms& forms, const AttentionSite& site, Expr past_length) {
  sym::Pool& pool = forms.pool();
  Visibility v;
  v.rest = pool.True();
  const Expr causal = pool.Le(pool.Index(3), pool.Add(past_length, pool.Index(2)), sym::Facts{});
  for (Expr part : sym::ConjunctsOf(site.keep)) {
    if (part == causal) {
      v.causal = true;
    } else {
      v.rest = pool.And(v.rest, part);
    }
  }
  return v;
}

}  // namespace kvlift
