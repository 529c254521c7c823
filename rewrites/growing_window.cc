// A growing cache that keeps its last W rows only:
//
//   full[.., t, ..] = t < P' ? past[.., t, ..] : update[.., t - P', ..]     what attention reads
//   present = the last min(P' + S, W) rows of full
//
// P', the past's extent, is min(P, W) after P tokens.
// Correct: a TensorScatter at P keeps all rows; its rows from max(P - W, 0) on are `full`.
// Source: transformers' sliding-window cache layers (the window is W + 1 tokens there).
#include <deque>

#include "absl/container/flat_hash_set.h"
#include "fmt/format.h"
#include "rewrite/recognise/append.h"
#include "rewrite/recognise/attention/match.h"
#include "rewrite/recognise/axis_letters.h"
#include "rewrite/types/rule.h"

namespace kvlift::rewrites {
namespace {

using sym::Expr;
using sym::Kind;
using UpdateResult = Recognised<CacheUpdate>;

constexpr int kMaxSearched = 32;

// Returns the value that the present is cut from: the past with all new rows behind it. Returns
// kNoValue if there is none.
ValueId FindFull(sym::Forms& forms, const CachePair& pair, Append* append) {
  const Graph& graph = forms.graph();
  std::deque<ValueId> queue = {pair.present};
  absl::flat_hash_set<ValueId> seen = {pair.present};
  for (int k = 0; k < kMaxSearched && !queue.empty(); ++k) {
    const ValueId v = queue.front();
    queue.pop_front();
    if (v != pair.present) {
      const auto read = ReadAppend(forms, pair.past, v);
      if (read && !read->reversed) {
        *append = *read;
        return v;
      }
    }
    const NodeId n = graph.producer(v);
    if (n == kNoNode) continue;
    for (ValueId input : graph.inputs(n)) {
      if (input == kNoValue || graph.constant(input) != nullptr) continue;
      if (seen.insert(input).second) queue.push_back(input);
    }
  }
  return kNoValue;
}

UpdateResult MatchGrowingWindow(sym::Forms& forms, const CachePair& pair) {
  const Graph& graph = forms.graph();
  sym::Pool& pool = forms.pool();
  const sym::Form past = forms.Of(pair.past), present = forms.Of(pair.present);
  if (!past.known_rank || !present.known_rank || past.shape.size() != present.shape.size()) {
    return UpdateResult::NotThis();
  }
  Append append;
  const ValueId full = FindFull(forms, pair, &append);
  if (full == kNoValue || append.length->kind() != Kind::kDim) return UpdateResult::NotThis();
  const sym::Form whole = forms.Of(full);
  const Expr total = whole.shape[append.axis], length = present.shape[append.axis];
  const auto window = sym::AtMostIn(pool, length);
  std::vector<Expr> at = Indices(pool, static_cast<int>(past.shape.size()));
  at[append.axis] = pool.Add(at[append.axis], pool.Sub(total, length));
  if (!window || window->length != total ||
      forms.At(full, at, sym::Facts{present.shape}) != present.element) {
    return UpdateResult::NotThis();
  }
  const NodeId node = graph.producer(pair.present);
  if (append.reordered_past != nullptr) {
    return UpdateResult::Refuse(MakeFinding(
        "KV202",
        fmt::format("needs a window whose sequences stay in their order, found {} taken in another",
                    graph.name(pair.past)),
        graph, {node}, {pair.past, pair.present}));
  }
  CacheUpdate update(pair, KeepLast{append.length, window->most, full});
  update.axis = append.axis;
  update.layout = LayoutOf(forms, pair, append.axis);
  if (update.layout.empty()) return UpdateResult::NotThis();
  update.new_length = pool.Sub(total, append.length);
  update.node = node;
  update.update_element = append.update;
  std::vector<Expr> shape = past.shape;
  shape[append.axis] = update.new_length;
  update.update = FindValue(forms, full, update.update_element, shape, update.axis,
                            forms.ElementType(pair.past));
  return UpdateResult::Match(std::move(update));
}

}  // namespace

const Rule& growing_window() {
  static const Rule rule = {"growing_window", "a growing cache that keeps the last rows only",
                            &MatchGrowingWindow, nullptr};
  return rule;
}

}  // namespace kvlift::rewrites
