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

ValueId FindValue(sym::Forms& forms, ValueId from, Expr element, absl::Span<const Expr> shape) {
  const Graph& graph = forms.graph();
  sym::Pool& pool = forms.pool();
  sym::Pool::Substitution unit_axes;
  unit_axes.indices = Indices(pool, shape);
  const sym::Facts facts{{shape.begin(), shape.end()}};
  const Expr wanted = pool.Substitute(element, unit_axes, facts);
  const auto fits = [&](ValueId v) {
    const sym::Form& form = forms.Of(v);
    return form.known_rank && absl::MakeConstSpan(form.shape) == shape &&
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

std::optional<int64_t> StaticExtent(sym::Forms& forms, const CacheUpdate& cache, char letter) {
  const size_t axis = cache.layout.find(letter);
  const sym::Form& form = forms.Of(cache.pair.past);
  if (axis == std::string::npos || axis >= form.shape.size()) return std::nullopt;
  const Expr dim = form.shape[axis];
  if (dim->kind() != Kind::kInteger) return std::nullopt;
  return dim->value();
}

int FindCache(sym::Forms& forms, absl::Span<const CacheUpdate> caches, Expr element, int64_t heads,
              const sym::Facts& facts) {
  sym::Pool& pool = forms.pool();
  const std::vector<Expr> index = Indices(pool, facts.extents);
  const std::vector<ValueId> sources = sym::SourcesOf(element);
  for (int c = 0; c < static_cast<int>(caches.size()); ++c) {
    // What is equal reads the same tensors: of many layers, one is compared.
    if (!std::binary_search(sources.begin(), sources.end(), caches[c].pair.past) &&
        !std::binary_search(sources.begin(), sources.end(), caches[c].pair.present)) {
      continue;
    }
    const auto kv_heads = StaticExtent(forms, caches[c], 'N');
    if (!kv_heads || *kv_heads <= 0 || heads % *kv_heads != 0) continue;
    std::vector<Expr> at;
    for (char letter : caches[c].layout) {
      switch (letter) {
        case 'B':
          at.push_back(index[0]);
          break;
        case 'N':
          at.push_back(pool.FloorDiv(index[1], pool.Integer(heads / *kv_heads), facts));
          break;
        case 'S':
          at.push_back(index[3]);
          break;
        default:
          at.push_back(index[4]);
          break;
      }
    }
    const Expr cache = forms.At(caches[c].pair.present, at, facts);
    if (cache == element || SameForEachHead(pool, cache, element, heads, facts)) return c;
  }
  return -1;
}

bool ReadsCache(absl::Span<const CacheUpdate> caches, Expr element) {
  const std::vector<ValueId> sources = sym::SourcesOf(element);
  return std::any_of(caches.begin(), caches.end(), [&](const CacheUpdate& cache) {
    return std::binary_search(sources.begin(), sources.end(), cache.pair.past) ||
           std::binary_search(sources.begin(), sources.end(), cache.pair.present);
  });
}

}  // namespace kvlift
