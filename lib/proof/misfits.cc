#include "proof/misfits.h"

#include "fmt/format.h"

namespace kvlift {

using sym::Expr;
using sym::Facts;
using sym::Kind;

std::vector<std::pair<std::string, std::string>> MisfitsOf(const GraphPair& pair,
                                                           const Correspondence& twins,
                                                           Equality& equality) {
  std::vector<std::pair<std::string, std::string>> found;
  sym::Pool& pool = pair.forms().pool();
  for (const sym::Assumption& assumption : pair.forms().assumptions()) {
    const Expr equal = assumption.predicate;
    if (!pair.IsOfAfter(assumption.node) || equal->kind() != Kind::kEq) continue;
    const Expr apart = twins.Extent(equal->args()[0], pool.Index(0));
    if (apart != nullptr && !sym::LoadsOf(apart).empty()) continue;
    if (apart != nullptr && equality.Equal(apart, pool.Integer(0), pool.True(), Facts{})) continue;
    found.emplace_back(pair.NameOf(pair.graph().outputs(assumption.node)[0]),
                       fmt::format("{} is not seen to be so", assumption.text));
  }
  return found;
}

bool LacksKeys(const GraphPair& pair, const Correspondence& twins, const AttentionReading& after) {
  if (after.valid == nullptr) return false;
  sym::Pool& pool = pair.forms().pool();
  const Expr valid = twins.Translate(after.valid, pool.Index(0), Facts{});
  const Expr keys = twins.Extent(after.extents.extents[3], pool.Index(0));
  if (valid == nullptr || keys == nullptr) return false;
  const Expr more = pool.Sub(valid, keys);
  return more->kind() == Kind::kInteger && more->value() > 0;
}

}  // namespace kvlift
