#include "rewrite/match.h"

#include <algorithm>
#include <deque>

#include "absl/container/flat_hash_set.h"

namespace kvlift {

using sym::Expr;
using sym::Kind;

namespace {
constexpr size_t kMaxSearched = 64;
constexpr int64_t kMaxHeads = 256;
constexpr int64_t kMaxLanes = 256;

// Heads that were put together one by one are the same for each constant i1.
bool SameForEachHead(sym::Pool& pool, Expr a, Expr b, int64_t heads, const sym::Facts& facts) {
  if (heads > kMaxHeads || !sym::ContainsIndex(b, 1) || sym::SourcesOf(a) != sym::SourcesOf(b)) {
    return false;
  }
  for (int64_t h = 0; h < heads; ++h) {
    sym::Pool::Substitution head;
    head.indices = {nullptr, pool.Integer(h)};
    if (pool.Substitute(a, head, facts) != pool.Substitute(b, head, facts)) return false;
  }
  return true;
}

int64_t LaneAt(const std::vector<Lane>& lanes, int axis) {
  for (const Lane& lane : lanes) {
    if (lane.axis == axis) return lane.index;
  }
  return 0;
}

// All ways to fix the axes that hold several caches; one empty way if there are none.
std::vector<std::vector<Lane>> LanesOf(sym::Forms& forms, const CacheUpdate& cache) {
  std::vector<std::vector<Lane>> all = {{}};
  for (int axis = 0; axis < static_cast<int>(cache.layout.size()); ++axis) {
    if (std::string_view("BNSD").find(cache.layout[axis]) != std::string_view::npos) continue;
    const Expr extent = forms.Of(cache.pair.past).shape[axis];
    if (extent->kind() != Kind::kInteger || extent->value() > kMaxLanes) return {};
    std::vector<std::vector<Lane>> next;
    for (const std::vector<Lane>& lanes : all) {
      for (int64_t k = 0; k < extent->value(); ++k) {
        next.push_back(lanes);
        next.back().push_back({axis, k});
      }
    }
    all = std::move(next);
  }
  return all;
}

bool SameShape(absl::Span<const Expr> a, absl::Span<const Expr> b, std::optional<int> joined_axis) {
  if (a.size() != b.size()) return false;
  for (size_t k = 0; k < a.size(); ++k) {
    if (a[k] == b[k]) continue;
    const bool numbers = a[k]->kind() == Kind::kInteger && b[k]->kind() == Kind::kInteger;
    if (!joined_axis || numbers || static_cast<int>(k) == *joined_axis) return false;
  }
  return true;
}
}  // namespace

std::vector<Expr> Indices(sym::Pool& pool, int n) {
  std::vector<Expr> indices;
  for (int k = 0; k < n; ++k) indices.push_back(pool.Index(k));
  return indices;
}

std::vector<Expr> Indices(sym::Pool& pool, absl::Span<const Expr> shape) {
  std::vector<Expr> indices = Indices(pool, static_cast<int>(shape.size()));
  for (size_t k = 0; k < shape.size(); ++k) {
    if (shape[k]->is_integer(1)) indices[k] = pool.Integer(0);
  }
  return indices;
}

ValueId FindValue(sym::Forms& forms, ValueId from, Expr element, absl::Span<const Expr> shape,
                  std::optional<int> joined_axis) {
  const Graph& graph = forms.graph();
  sym::Pool& pool = forms.pool();
  sym::Pool::Substitution unit_axes;
  unit_axes.indices = Indices(pool, shape);
  const sym::Facts facts{{shape.begin(), shape.end()}};
  const Expr wanted = pool.Substitute(element, unit_axes, facts);
  const auto fits = [&](ValueId v) {
    const sym::Form& form = forms.Of(v);
    return form.known_rank && SameShape(form.shape, shape, joined_axis) &&
           pool.Substitute(form.element, unit_axes, facts) == wanted;
  };
  if (element->kind() == Kind::kLoad && fits(element->source())) return element->source();
  std::deque<ValueId> queue = {from};
  absl::flat_hash_set<ValueId> seen = {from};
  for (size_t searched = 0; !queue.empty() && searched < kMaxSearched; ++searched) {
    const ValueId v = queue.front();
    queue.pop_front();
    if (fits(v)) return v;
    const NodeId n = graph.producer(v);
    if (n == kNoNode) continue;
    for (ValueId input : graph.inputs(n)) {
      if (input == kNoValue || graph.constant(input) != nullptr) continue;
      if (seen.insert(input).second) queue.push_back(input);
    }
  }
  return kNoValue;
}

std::optional<int64_t> HeadsOf(sym::Forms& forms, const CacheUpdate& cache, int64_t head_dim) {
  const size_t axis = cache.layout.find('N');
  const bool own_axis = axis != std::string::npos;
  const size_t counted = own_axis ? axis : cache.layout.find('D');
  if (counted == std::string::npos || head_dim <= 0) return std::nullopt;
  const Expr dim = forms.Of(cache.pair.past).shape[counted];
  if (dim->kind() != Kind::kInteger) return std::nullopt;
  if (own_axis) return dim->value();
  if (dim->value() % head_dim != 0) return std::nullopt;
  return dim->value() / head_dim;
}

CacheOperand FindCache(sym::Forms& forms, absl::Span<const CacheUpdate> caches, Expr element,
                       int64_t heads, const sym::Facts& facts) {
  sym::Pool& pool = forms.pool();
  const std::vector<Expr> index = Indices(pool, facts.extents);
  const std::vector<ValueId> sources = sym::SourcesOf(element);
  const Expr size = facts.extents[4];
  const int64_t head_dim = size != nullptr && size->kind() == Kind::kInteger ? size->value() : 0;
  for (int c = 0; c < static_cast<int>(caches.size()); ++c) {
    const CacheUpdate& cache = caches[c];
    if (!std::binary_search(sources.begin(), sources.end(), cache.pair.past)) continue;
    const auto kv_heads = HeadsOf(forms, cache, head_dim);
    if (!kv_heads || *kv_heads <= 0 || heads % *kv_heads != 0) continue;
    const Expr head = pool.FloorDiv(index[1], pool.Integer(heads / *kv_heads), facts);
    const bool own_axis = cache.layout.find('N') != std::string::npos;
    for (const std::vector<Lane>& lanes : LanesOf(forms, cache)) {
      std::vector<Expr> at;
      for (int axis = 0; axis < static_cast<int>(cache.layout.size()); ++axis) {
        switch (cache.layout[axis]) {
          case 'B':
            at.push_back(index[0]);
            break;
          case 'N':
            at.push_back(head);
            break;
          case 'S':
            at.push_back(index[3]);
            break;
          case 'D':
            at.push_back(own_axis ? index[4]
                                  : pool.Add(pool.Mul(head, pool.Integer(head_dim)), index[4]));
            break;
          default:
            at.push_back(pool.Integer(LaneAt(lanes, axis)));
            break;
        }
      }
      const Expr read = forms.At(cache.attended, at, facts);
      if (read == element || SameForEachHead(pool, read, element, heads, facts)) {
        return {c, lanes};
      }
    }
  }
  return {};
}

bool ReadsCache(absl::Span<const CacheUpdate> caches, Expr element) {
  const std::vector<ValueId> sources = sym::SourcesOf(element);
  return std::any_of(caches.begin(), caches.end(), [&](const CacheUpdate& cache) {
    return std::binary_search(sources.begin(), sources.end(), cache.pair.past) ||
           std::binary_search(sources.begin(), sources.end(), cache.pair.present);
  });
}

}  // namespace kvlift
