#include "rewrite/plan/planned_cache.h"

#include <algorithm>
#include <optional>

#include "base/overloaded.h"
#include "fmt/format.h"
#include "rewrite/recognise/attention/visibility.h"
#include "rewrite/recognise/input_assumptions.h"

namespace kvlift {
namespace {

// Returns how many tokens in front of its own a query sees at most; nullopt if no bound is known.
std::optional<int64_t> TokensSeenBack(const Analysis& a, const AttentionSite& site) {
  if (!site.mask.biases.empty()) return std::nullopt;
  const sym::Expr start =
      CountedUp(*a.forms, a.updates[site.key.cache].write_index(a.forms->pool()));
  const bool one_token = QueryShape(*a.forms, site)[2]->is_integer(1);
  std::optional<int64_t> least;
  for (sym::Expr part : sym::ConjunctsOf(CountedUp(*a.forms, site.mask.keep))) {
    const auto back = TokensBack(a.forms->pool(), part, start, one_token);
    if (back && (!least || *back < *least)) least = back;
  }
  return least;
}

// Returns, for each update, the number of past tokens that attention reads at most; 0: no bound
// above 0 is known.
std::vector<int64_t> WindowsOfAttention(const Analysis& a) {
  std::vector<int64_t> seen(a.updates.size(), 0);
  std::vector<bool> bounded(a.updates.size(), true);
  for (const AnalysedAttention& attention : a.attention) {
    // An attention that no rule takes over may read any cache.
    if (!attention.site) return std::vector<int64_t>(a.updates.size(), 0);
    const auto back = TokensSeenBack(a, *attention.site);
    for (int index : {attention.site->key.cache, attention.site->value.cache}) {
      bounded[index] = bounded[index] && back.has_value();
      seen[index] = std::max(seen[index], back.value_or(0));
    }
  }
  for (size_t k = 0; k < seen.size(); ++k) {
    if (!bounded[k]) seen[k] = 0;
  }
  return seen;
}

}  // namespace

bool PlannedCache::moves_rows() const {
  return std::visit(
      Overloaded{[](const LinearBuffer&) { return false; }, [](const WindowRing&) { return true; },
                 [](const SourceRing&) { return false; }, [](const FifoRing&) { return true; }},
      buffer);
}

std::string PlannedCache::buffer_words() const {
  return std::visit(
      Overloaded{[](const LinearBuffer&) { return std::string(); },
                 [](const WindowRing& ring) {
                   return fmt::format(", a ring of more than {} rows", ring.window);
                 },
                 [](const SourceRing&) { return std::string(", in which rows wrap around"); },
                 [](const FifoRing&) { return std::string(", in which rows stay in place"); }},
      buffer);
}

std::vector<PlannedCache> PlanBuffers(const Analysis& a, const ResolvedOptions& options) {
  using Buffer = PlannedCache::Buffer;
  const bool rings = options.window == WindowForm::kCircular;
  std::vector<int64_t> seen(a.updates.size(), 0);
  if (rings) seen = WindowsOfAttention(a);
  std::vector<PlannedCache> caches;
  for (size_t k = 0; k < a.updates.size(); ++k) {
    const CacheUpdate& update = a.updates[k];
    const bool may_be_ring = rings && update.axis != 0;
    const Buffer buffer = std::visit(
        Overloaded{[](const auto&) { return Buffer(LinearBuffer{}); },
                   [&](const AppendAll&) {
                     const bool ring =
                         may_be_ring && update.reordered_past == nullptr && seen[k] > 0;
                     return ring ? Buffer(WindowRing{seen[k]}) : Buffer(LinearBuffer{});
                   },
                   [&](const KeepLast& last) {
                     return may_be_ring ? Buffer(WindowRing{last.window}) : Buffer(LinearBuffer{});
                   },
                   [](const WriteAround&) { return Buffer(SourceRing{}); },
                   [](const Fifo&) { return Buffer(FifoRing{}); }},
        update.how);
    caches.emplace_back(
        update, buffer,
        PlacementOf(options.layout, update, HeadsInLastAxis(a, static_cast<int>(k))));
  }
  return caches;
}

}  // namespace kvlift
