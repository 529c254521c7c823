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

constexpr std::string_view kHeadless = "BSD";

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

Placement PlacementOf(Layout layout, const CacheUpdate& update, int64_t heads) {
  const bool apart = update.layout.find('N') != std::string::npos;
  if (layout == Layout::kBnsd && update.layout != kHeadsFirst) return {kHeadsFirst, 2, true, heads};
  if (layout == Layout::kHeadsInLastAxis && apart) return {kHeadsInLastAxis, 1, true, 0};
  return {update.layout, update.axis, false, 0};
}

int64_t HeadsInLastAxis(const Analysis& a, int update_index) {
  const CacheUpdate& update = a.updates[update_index];
  if (update.layout != kHeadless) return 0;
  const int64_t width = ExtentOf(*a.forms, update, 'D');
  int64_t heads = 0;
  for (const AnalysedAttention& attention : a.attention) {
    if (!attention.site) continue;
    const AttentionSite& site = *attention.site;
    for (const auto& [operand, size] :
         {std::pair(&site.key, site.head_dim), {&site.value, site.v_head_dim}}) {
      if (operand->cache != update_index) continue;
      const CacheView& view = operand->view;
      const bool whole = !view.batch_times_heads && view.first_head == 0 &&
                         view.first_element == 0 && view.fixed_axes.empty() &&
                         view.heads * size == width;
      if (!whole || (heads != 0 && heads != view.heads)) return 0;
      heads = view.heads;
    }
  }
  return heads;
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
    if (joined && update.kind() == UpdateKind::kSliding) {
      return MakeFinding("KV229",
                         "needs caches that hold all rows in the source to put heads on the last "
                         "axis, found a sliding buffer",
                         *a.graph, {update.node}, {update.pair.past});
    }
    if ((joined && update.layout == kHeadless) ||
        (!update.placement.moved && IsPermutation(update.layout)))
      continue;
    const bool plain = IsPermutation(update.layout) && update.may_have_other_layout() &&
                       ExtentOf(*a.forms, update, 'N') > 0 && ExtentOf(*a.forms, update, 'D') > 0 &&
                       (!joined || ReadWhole(a, caches, update));
    const bool split = update.placement.split_heads > 0 && update.may_have_other_layout();
    if (plain || split) continue;
    return MakeFinding("KV229",
                       fmt::format("needs caches with an axis of sequences in front, one of heads "
                                   "and one of their elements, or both on the last axis, to give "
                                   "them another layout, found {}",
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
  if (place.split_heads > 0) {
    const Expr heads = pool.Integer(place.split_heads);
    const Expr size = pool.Integer(ExtentOf(forms, cache, 'D') / place.split_heads);
    shape = {extent('B'), heads, extent('S'), size};
    index = {pool.Index(0), nullptr, pool.Index(2),
             pool.Add(pool.Mul(pool.Index(1), size), pool.Index(3))};
  } else if (place.layout == kHeadsFirst) {
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
