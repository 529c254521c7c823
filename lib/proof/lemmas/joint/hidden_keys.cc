#include "proof/lemmas/joint/hidden_keys.h"

namespace kvlift {

using sym::Expr;
using sym::Facts;

namespace {

constexpr int kKeyIndex = 3;

}  // namespace

Expr VisibleWhereThereAreKeys(const Correspondence& twins, Equality& equality, sym::Pool& pool,
                              Expr visible, const AttentionReading& after, const Facts& facts) {
  const Expr end = twins.Extent(after.extents.extents[kKeyIndex], pool.Index(0));
  const Expr keys = facts.extents[kKeyIndex];
  if (visible == nullptr || end == nullptr || keys == nullptr) return nullptr;
  const Expr fits = twins.Fits();
  for (const Expr known : {fits, pool.And(fits, twins.SourceFits())}) {
    if (equality.Follows(known, pool.Le(keys, end, Facts{}), Facts{})) return visible;
  }
  return pool.And(visible, pool.Lt(pool.Index(kKeyIndex), end, facts));
}

Expr VisibleBehind(const Correspondence& twins, sym::Pool& pool, const AttentionReading& after,
                   Expr first, const Facts& behind) {
  const Expr seen = twins.Translate(after.visible, pool.Index(0), Facts{});
  if (seen == nullptr) return nullptr;
  sym::Pool::Substitution shift;
  shift.indices = {nullptr, nullptr, nullptr, pool.Add(pool.Index(kKeyIndex), first)};
  return pool.Substitute(seen, shift, behind);
}

}  // namespace kvlift
