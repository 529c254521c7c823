#include "rewrite/plan/placement.h"

#include <algorithm>
#include <string_view>
#include <vector>

#include "fmt/format.h"
#include "rewrite/plan/planned_cache.h"
#include "rewrite/recognise/attention/match.h"

namespace kvlift {
namespace {

using sym::Expr;
using sym::Kind;

bool IsPermutation(const std::string& layout) {
  return layout.size() == 4 && layout[0] == 'B' &&
         std::is_permutation(layout.begin(), layout.end(), kHeadsFirst);
}

// Returns true if every attention over the cache reads all its heads and all their elements.
bool ReadWhole(const Analysis& a, absl::Span<const PlannedCache> caches,
               const PlannedCache& update) {
  const auto whole = [&](int cache, const CacheView& view, int64_t size) {
    return &caches[cache] != &update || (view.first_head == 0 && view.first_element == 0 &&
                                         view.heads == ExtentOf(*a.forms, update, 'N') &&
                                         size == ExtentOf(*a.forms, update, 'D'));
  };
  return std::all_of(a.attention.begin(), a.attention.end(), [&](const auto& attention) {
    return !attention.site ||
           (whole(attention.site->key.cache, attention.site->key.view, attention.site->head_dim) &&
            whole(attention.site->value.cache, attention.site->value.view,
                  attention.site->v_head_dim));
  });
}

}  // namespace

int64_t ExtentOf(sym::Forms& forms, const CacheUpdate& update, char letter) {
  const Expr extent = forms.Of(update.pair.past).shape[update.layout.find(letter)];
  return extent->kind() == Kind::kInteger ? extent->value() : 0;
}

Placement PlacementOf(Layout layout, const CacheUpdate& update) {
  const bool heads = update.layout.find('N') != std::string::npos;
  if (layout == Layout::kBnsd && update.layout != kHeadsFirst) return {kHeadsFirst, 2, true};
  if (layout == Layout::kHeadsInLastAxis && heads) return {kHeadsInLastAxis, 1, true};
  return {update.layout, update.axis, false};
}

std::optional<Finding> JudgeLayouts(const Analysis& a, absl::Span<const PlannedCache> caches,
                                    const ResolvedOptions& options) {
  if (IsCompiled(options.target) && HasGrowing(a) && !options.max_seq_len) {
    return MakeFinding("KV229", "needs a fixed capacity for this target: give --max-seq-len",
                       *a.graph, {a.updates.front().node});
  }
  if (options.layout == Layout::kKeep) return std::nullopt;
  for (const PlannedCache& update : caches) {
    const bool joined = options.layout == Layout::kHeadsInLastAxis;
    if ((joined && update.layout == "BSD") ||
        (!update.placement.moved && IsPermutation(update.layout)))
      continue;
    const bool plain = IsPermutation(update.layout) && update.may_have_other_layout() &&
                       ExtentOf(*a.forms, update, 'N') > 0 && ExtentOf(*a.forms, update, 'D') > 0 &&
                       (!joined || ReadWhole(a, caches, update));
    if (plain) continue;
    return MakeFinding("KV229",
                       fmt::format("needs caches with an axis of sequences in front, one of heads "
                                   "and one of their elements to give them another layout, found "
                                   "{}",
                                   update.layout),
                       *a.graph, {update.node}, {update.pair.past});
  }
  return std::nullopt;
}

ValueId FindRowsInTargetLayout(sym::Forms& forms, const PlannedCache& cache) {
  const Placement& place = cache.placement;
  if (!place.moved) return kNoValue;
  sym::Pool& pool = forms.pool();
  std::vector<Expr> rows = forms.Of(cache.pair.past).shape;
  rows[cache.axis] = cache.new_length;
  const auto extent = [&](char letter) { return rows[cache.layout.find(letter)]; };
  std::vector<Expr> shape;
  std::vector<Expr> index(4);  // the indices of B, N, S, D
  if (place.layout == kHeadsFirst) {
    for (int k = 0; k < 4; ++k) {
      shape.push_back(extent(kHeadsFirst[k]));
      index[k] = pool.Index(k);
    }
  } else {
    shape = {extent('B'), extent('S'), pool.Mul(extent('N'), extent('D'))};
    const sym::Facts facts{shape};
    index = std::vector<Expr>{pool.Index(0), pool.FloorDiv(pool.Index(2), extent('D'), facts),
                              pool.Index(1), pool.Mod(pool.Index(2), extent('D'), facts)};
  }
  sym::Pool::Substitution at;
  for (char letter : cache.layout) {
    at.indices.push_back(index[std::string_view(kHeadsFirst).find(letter)]);
  }
  const Expr element = pool.Substitute(cache.update_element, at, sym::Facts{shape});
  return FindValue(forms, cache.pair.present, element, shape, std::nullopt,
                   forms.ElementType(cache.pair.past));
}

}  // namespace kvlift
