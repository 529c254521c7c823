#include "rewrite/recognise/attention/match.h"

#include <algorithm>
#include <deque>

#include "absl/container/flat_hash_set.h"
#include "base/overloaded.h"
#include "ir/types.h"
#include "rewrite/lower/fused/decoded_rows.h"
#include "sym/forms/keeps_value.h"

namespace kvlift {

using sym::Expr;
using sym::Kind;

namespace {
constexpr size_t kMaxValuesSearched = 64;
constexpr int64_t kMaxHeads = 256;
constexpr int64_t kMaxPlaces = 256;

// Compares a and b for each constant i1, since heads that are joined one by one have a form each.
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

int64_t IndexOn(const std::vector<FixedAxis>& fixed_axes, int axis) {
  for (const FixedAxis& fixed : fixed_axes) {
    if (fixed.axis == axis) return fixed.index;
  }
  return 0;
}

// Returns all ways to fix the axes that hold several caches: one empty way if there is no such
// axis, and no way if an extent is not a constant or too large.
std::vector<std::vector<FixedAxis>> WaysToFixAxes(sym::Forms& forms, const CacheUpdate& cache) {
  std::vector<std::vector<FixedAxis>> all = {{}};
  for (int axis = 0; axis < static_cast<int>(cache.layout.size()); ++axis) {
    if (std::string_view("BNSD").find(cache.layout[axis]) != std::string_view::npos) continue;
    const Expr extent = forms.Of(cache.pair.past).shape[axis];
    if (extent->kind() != Kind::kInteger || extent->value() > kMaxPlaces) return {};
    std::vector<std::vector<FixedAxis>> next;
    for (const std::vector<FixedAxis>& fixed_axes : all) {
      for (int64_t k = 0; k < extent->value(); ++k) {
        next.push_back(fixed_axes);
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
  indices.reserve(static_cast<size_t>(n));
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
                  std::optional<int> joined_axis, std::optional<int32_t> elem_type) {
  const Graph& graph = forms.graph();
  sym::Pool& pool = forms.pool();
  sym::Pool::Substitution unit_axes;
  unit_axes.indices = Indices(pool, shape);
  const sym::Facts facts{{shape.begin(), shape.end()}};
  const Expr wanted = pool.Substitute(element, unit_axes, facts);
  const auto fits = [&](ValueId v) {
    const sym::Form& form = forms.Of(v);
    const int32_t known = elem_type ? forms.ElementType(v) : 0;  // 0: not known
    if (known != 0 && known != *elem_type) return false;
    return form.known_rank && SameShape(form.shape, shape, joined_axis) &&
           pool.Substitute(form.element, unit_axes, facts) == wanted;
  };
  if (element->kind() == Kind::kLoad && fits(element->source())) return element->source();
  std::deque<ValueId> queue = {from};
  absl::flat_hash_set<ValueId> seen = {from};
  for (size_t searched = 0; !queue.empty() && searched < kMaxValuesSearched; ++searched) {
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

namespace {

// Reads an operand as [b, h, t, d] of a cache, or of `rows` that are decoded from it.
class ViewFinder {
 public:
  ViewFinder(sym::Forms& forms, const CacheUpdate& cache, ValueId rows, Expr element, int64_t heads,
             const sym::Facts& facts)
      : forms_(forms),
        pool_(forms.pool()),
        cache_(cache),
        rows_(rows == kNoValue ? cache.read_by_attention() : rows),
        loaded_(rows == kNoValue ? cache.pair.past : rows),
        element_(element),
        heads_(heads),
        facts_(facts),
        index_(Indices(forms.pool(), facts.extents)),
        batch_(cache.layout.find('B')),
        size_(cache.layout.find('D')),
        has_heads_(cache.layout.find('N') != std::string::npos) {}

  std::optional<CacheView> Find() {
    if (batch_ == std::string::npos || size_ == std::string::npos) return std::nullopt;
    for (Expr load : sym::LoadsOf(element_)) {
      if (load->source() != loaded_) continue;
      CacheView view;
      if (!ReadFirst(load, &view)) continue;
      for (int64_t kv_heads : HeadCounts(load, &view)) {
        view.heads = kv_heads;
        for (std::vector<FixedAxis>& fixed_axes : WaysToFixAxes(forms_, cache_)) {
          view.fixed_axes = std::move(fixed_axes);
          if (Fits(view)) return view;
        }
      }
      return std::nullopt;
    }
    return std::nullopt;
  }

 private:
  // Reads the indices on axes N and D for head 0 and d = 0.
  bool ReadFirst(Expr load, CacheView* view) const {
    sym::Pool::Substitution first;
    first.indices = {nullptr, pool_.Integer(0), nullptr, nullptr, pool_.Integer(0)};
    const auto read = [&](size_t axis, int64_t* index) {
      const Expr at = pool_.Substitute(load->args()[axis], first, facts_);
      if (at->kind() != Kind::kInteger || at->value() < 0) return false;
      *index = at->value();
      return true;
    };
    return read(size_, &view->first_element) &&
           (!has_heads_ || read(cache_.layout.find('N'), &view->first_head));
  }

  // Returns the numbers that Nk can be, and sets view->batch_times_heads.
  std::vector<int64_t> HeadCounts(Expr load, CacheView* view) const {
    const std::vector<Expr>& shape = forms_.Of(loaded_).shape;
    if (has_heads_) {
      const Expr extent = shape[cache_.layout.find('N')];
      if (extent->kind() != Kind::kInteger) return {};
      return DivisorsUpTo(extent->value() - view->first_head);
    }
    const Expr row = load->args()[batch_];
    if (row != index_[0] && sym::ContainsIndex(row, 1)) {
      view->batch_times_heads = true;
      const auto linear = sym::LinearIn(pool_, row, pool_.Index(0));
      if (linear && linear->coefficient > 0) return IfDivisor(linear->coefficient);
      const Expr extent = shape[batch_];
      return extent->kind() == Kind::kInteger ? IfDivisor(extent->value()) : std::vector<int64_t>{};
    }
    const Expr extent = shape[size_], head_dim = facts_.extents[4];
    if (extent->kind() != Kind::kInteger || head_dim == nullptr ||
        head_dim->kind() != Kind::kInteger || head_dim->value() <= 0) {
      return {};
    }
    return DivisorsUpTo((extent->value() - view->first_element) / head_dim->value());
  }

  // Returns the divisors of the number of heads that are at most `most`, the largest first. No
  // divisors are tried for more than kMostHeads heads, because a model may declare any number and
  // trying them all would take too long.
  std::vector<int64_t> DivisorsUpTo(int64_t most) const {
    constexpr int64_t kMostHeads = 1 << 16;
    std::vector<int64_t> divisors;
    if (heads_ > kMostHeads) return divisors;
    for (int64_t n = std::min(most, heads_); n > 0; --n) {
      if (heads_ % n == 0) divisors.push_back(n);
    }
    return divisors;
  }

  std::vector<int64_t> IfDivisor(int64_t n) const {
    return n > 0 && heads_ % n == 0 ? std::vector<int64_t>{n} : std::vector<int64_t>{};
  }

  bool Fits(const CacheView& view) const {
    const Expr head = pool_.FloorDiv(index_[1], pool_.Integer(heads_ / view.heads), facts_);
    const Expr first = pool_.Integer(view.first_element);
    std::vector<Expr> at;
    for (int axis = 0; axis < static_cast<int>(cache_.layout.size()); ++axis) {
      switch (cache_.layout[axis]) {
        case 'B':
          at.push_back(view.batch_times_heads
                           ? pool_.Add(pool_.Mul(index_[0], pool_.Integer(view.heads)), head)
                           : index_[0]);
          break;
        case 'N':
          at.push_back(pool_.Add(pool_.Integer(view.first_head), head));
          break;
        case 'S':
          at.push_back(index_[3]);
          break;
        case 'D':
          at.push_back(
              pool_.Add(first, has_heads_ || view.batch_times_heads ? index_[4] : Joined(head)));
          break;
        default:
          at.push_back(pool_.Integer(IndexOn(view.fixed_axes, axis)));
          break;
      }
    }
    const Expr read = forms_.At(rows_, at, facts_);
    return read == element_ || SameForEachHead(pool_, read, element_, heads_, facts_);
  }

  // Returns the index on an axis D that holds all heads, one behind the other.
  Expr Joined(Expr head) const { return pool_.Add(pool_.Mul(head, facts_.extents[4]), index_[4]); }

  sym::Forms& forms_;
  sym::Pool& pool_;
  const CacheUpdate& cache_;
  ValueId rows_, loaded_;
  Expr element_;
  int64_t heads_;
  const sym::Facts& facts_;
  std::vector<Expr> index_;
  size_t batch_, size_;
  bool has_heads_;
};

// Returns true if a cache is read in another floating-point type that holds all of its numbers: a
// wider one, or a narrower one if it is declared wider than its numbers are.
bool IsReadAs(sym::Forms& forms, ValueId past, int32_t elem_type) {
  return elem_type != forms.ElementType(past) && IsFloatType(elem_type) &&
         sym::CastFidelity(forms.NumbersOf(past).type, elem_type) == sym::Fidelity::kExact;
}

}  // namespace

Dequantized ThroughDequantize(sym::Forms& forms, Expr element, const sym::Facts& facts) {
  const Graph& graph = forms.graph();
  if (element == nullptr || element->kind() != Kind::kLoad) return {element};
  const NodeId n = graph.producer(element->source());
  if (n == kNoNode || !graph.Is(n, "DequantizeLinear")) return {element};
  for (const ValueId v : graph.inputs(n).subspan(1)) {
    if (v == kNoValue) continue;
    const sym::Form form = forms.Of(v);
    const bool one =
        form.known_rank && std::all_of(form.shape.begin(), form.shape.end(),
                                       [](Expr extent) { return extent->is_integer(1); });
    const bool constant =
        one && (form.element->kind() == Kind::kInteger || form.element->kind() == Kind::kFloat);
    if (!constant) return {element};
  }
  const Expr codes = forms.At(graph.inputs(n)[0], element->args(), facts);
  if (codes == nullptr) return {element};
  return {codes, n};
}

CacheOperand FindCache(sym::Forms& forms, absl::Span<const CacheUpdate> caches, Expr element,
                       int32_t elem_type, int64_t heads, const sym::Facts& facts) {
  const Dequantized stored = ThroughDequantize(forms, element, facts);
  if (stored.node != kNoNode) {
    const ValueId rows = forms.graph().inputs(stored.node)[0];
    CacheOperand found =
        FindCache(forms, caches, stored.element, forms.ElementType(rows), heads, facts);
    if (found.cache >= 0) {
      found.view.rows = ComputedRows{{stored.node}, {rows}};
      return found;
    }
  }
  const std::vector<ValueId> sources = sym::SourcesOf(element);
  for (int c = 0; c < static_cast<int>(caches.size()); ++c) {
    if (!std::binary_search(sources.begin(), sources.end(), caches[c].pair.past)) continue;
    auto view = ViewFinder(forms, caches[c], kNoValue, element, heads, facts).Find();
    if (!view) continue;
    if (IsReadAs(forms, caches[c].pair.past, elem_type)) view->rows = CastRows{elem_type};
    return {c, *std::move(view)};
  }
  for (ValueId rows : sources) {
    DecodedRows decoded = ReadDecodedRows(forms, caches, rows);
    if (decoded.cache < 0) continue;
    auto view = ViewFinder(forms, caches[decoded.cache], rows, element, heads, facts).Find();
    if (!view) continue;
    view->rows = ComputedRows{std::move(decoded.nodes), std::move(decoded.roots)};
    return {decoded.cache, *std::move(view)};
  }
  return {};
}

int32_t TypeOfRows(sym::Forms& forms, const CacheUpdate& cache, const CacheView& view) {
  return std::visit(
      Overloaded{[&](const RowsAsStored&) { return forms.ElementType(cache.pair.past); },
                 [](const CastRows& cast) { return cast.elem_type; },
                 [&](const ComputedRows& computed) {
                   return forms.ElementType(forms.graph().outputs(computed.nodes.back())[0]);
                 }},
      view.rows);
}

bool ReadsCache(absl::Span<const CacheUpdate> caches, Expr element) {
  const std::vector<ValueId> sources = sym::SourcesOf(element);
  return std::any_of(caches.begin(), caches.end(), [&](const CacheUpdate& cache) {
    return std::binary_search(sources.begin(), sources.end(), cache.pair.past) ||
           std::binary_search(sources.begin(), sources.end(), cache.pair.present);
  });
}

bool ReadsStored(sym::Forms& forms, absl::Span<const CacheUpdate> caches, Expr element,
                 const sym::Facts& facts) {
  if (ReadsCache(caches, ThroughDequantize(forms, element, facts).element)) return true;
  const std::vector<ValueId> sources = sym::SourcesOf(element);
  return std::any_of(sources.begin(), sources.end(),
                     [&](ValueId v) { return ReadDecodedRows(forms, caches, v).cache >= 0; });
}

}  // namespace kvlift
