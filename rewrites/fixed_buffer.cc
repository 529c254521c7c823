// present = a buffer of fixed capacity with the new tokens written at a slot that the graph knows:
//
//   present[.., t, ..] = w <= t < w + S ? update[.., t - w, ..] : past[.., t, ..]
//
// w is an expression that contains the batch index at most. If only some sequences of a larger
// batch are written, the update repeats the rows of the others. Whether the graph scatters, splices
// slices, selects by a one-hot mask or blends with one does not matter. Correct: TensorScatter at
// write_indices = w computes that expression. Source: static caches of transformers, gpt-fast,
// hand-written decoders, jax's dynamic_update_slice.
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
using UpdateResult = Recognised<CacheUpdate>;

// Returns how the graph writes, by the operator nearest to the present.
WriteSpelling SpellingOf(const Graph& graph, ValueId present) {
  std::deque<ValueId> queue = {present};
  absl::flat_hash_set<ValueId> seen = {present};
  while (!queue.empty()) {
    const NodeId n = graph.producer(queue.front());
    queue.pop_front();
    if (n == kNoNode) continue;
    for (const char* op : {"ScatterND", "ScatterElements", "TensorScatter"}) {
      if (graph.Is(n, op)) return WriteSpelling::kScatter;
    }
    if (graph.Is(n, "Where")) return WriteSpelling::kSelect;
    if (graph.Is(n, "Concat")) return WriteSpelling::kSplice;
    if (graph.Is(n, "Add")) return WriteSpelling::kBlend;
    for (ValueId input : graph.inputs(n)) {
      if (input != kNoValue && seen.insert(input).second) queue.push_back(input);
    }
  }
  return WriteSpelling::kScatter;
}

// Returns true if the start counts back from the end of the buffer: ScatterND takes such slots,
// TensorScatter does not.
bool CountsFromTheEnd(Expr start, Expr capacity) {
  if (capacity->kind() != sym::Kind::kInteger) return false;
  for (const sym::Term& term : start->terms()) {
    if (term.atoms.empty() && term.coefficient <= -capacity->value()) return true;
  }
  return false;
}

UpdateResult MatchFixedBuffer(sym::Forms& forms, const CachePair& pair) {
  const auto write = ReadWrite(forms, pair);
  if (!write) return UpdateResult::NotThis();
  const sym::Form past = forms.Of(pair.past);
  const Graph& graph = forms.graph();
  const NodeId node = graph.producer(pair.present);
  if (CountsFromTheEnd(write->start, past.shape[write->axis])) {
    return UpdateResult::Refuse(MakeFinding(
        "KV204",
        fmt::format("needs slots that count from 0, found {}", sym::ToString(write->start, &graph)),
        graph, {node}, {pair.past, pair.present}));
  }
  auto update = BufferUpdate(
      forms, pair, *write,
      WriteAt{write->start, SpellingOf(graph, pair.present), write->writes_some_sequences});
  if (!update) return UpdateResult::NotThis();
  return UpdateResult::Match(*std::move(update));
}

}  // namespace

const Rule& fixed_buffer() {
  static const Rule rule = {"fixed_buffer",
                            "a cache of fixed capacity, written at a slot the graph knows",
                            &MatchFixedBuffer, nullptr};
  return rule;
}

}  // namespace kvlift::rewrites
