#include "rewrite/rings.h"

#include <algorithm>
#include <vector>

#include "rewrite/host_facts.h"
#include "rewrite/visibility.h"

namespace kvlift {
namespace {

// Returns how many tokens in front of its own a query sees at most; nullopt if no bound is known.
std::optional<int64_t> TokensSeenBack(Analysis& a, const AttentionSite& site) {
  if (!site.mask.biases.empty()) return std::nullopt;
  const sym::Expr start = CountedUp(*a.forms, a.updates[site.key.cache].start);
  const bool one_token = QueryShape(*a.forms, site)[2]->is_integer(1);
  std::optional<int64_t> least;
  for (sym::Expr part : sym::ConjunctsOf(CountedUp(*a.forms, site.mask.keep))) {
    const auto back = TokensBack(a.forms->pool(), part, start, one_token);
    if (back && (!least || *back < *least)) least = back;
  }
  return least;
}

}  // namespace

void MakeRings(Analysis& a) {
  std::vector<int64_t> seen(a.updates.size(), 0);
  std::vector<bool> bounded(a.updates.size(), true);
  for (const AnalysedAttention& attention : a.attention) {
    if (!attention.site) bounded.assign(a.updates.size(), false);  // it may read any cache
    if (!attention.site) break;
    const auto back = TokensSeenBack(a, *attention.site);
    for (int index : {attention.site->key.cache, attention.site->value.cache}) {
      bounded[index] = bounded[index] && back.has_value();
      seen[index] = std::max(seen[index], back.value_or(0));
    }
  }
  for (size_t k = 0; k < a.updates.size(); ++k) {
    CacheUpdate& update = a.updates[k];
    if (!update.growing || update.axis == 0 || update.base != nullptr) continue;
    if (update.window == 0 && (!bounded[k] || seen[k] <= 0)) continue;
    update.circular = true;
    update.visible = update.window != 0 ? update.window : seen[k];
  }
}

}  // namespace kvlift
