// present = the past with the new tokens behind it:
//
//   present[.., t, ..] = t < P ? past[.., t, ..] : update[.., t - P, ..]
//
// P is the past's extent along the sequence axis, wherever that axis is. How the graph puts the two
// together (Concat, Pad and Where, ScatterND into zeros) does not matter, nor does it matter
// whether the tensor holds keys, values, both, or those of several layers. Correct: a TensorScatter
// at write_indices = P writes the same rows behind the same past. Source: torch.onnx and Optimum
// exports with a dynamic cache.
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

// Returns the node that makes a value, also behind Identity nodes.
NodeId MadeBy(const Graph& graph, ValueId v) {
  NodeId n = graph.producer(v);
  while (graph.Is(n, "Identity") && graph.producer(graph.inputs(n)[0]) != kNoNode) {
    n = graph.producer(graph.inputs(n)[0]);
  }
  return n;
}

UpdateResult MatchGrowingConcat(sym::Forms& forms, const CachePair& pair) {
  const Graph& graph = forms.graph();
  const auto append = ReadAppend(forms, pair.past, pair.present);
  if (!append) return UpdateResult::NotThis();
  const NodeId node = graph.producer(pair.present);
  if (append->reversed) {
    return UpdateResult::Refuse(MakeFinding(
        "KV203",
        fmt::format("needs the new tokens behind the past, found them in front: {} starts with "
                    "what is new, and {} moves",
                    graph.name(pair.present), graph.name(pair.past)),
        graph, {node}, {pair.past, pair.present}));
  }
  if (const NodeId made = MadeBy(graph, pair.present); graph.outputs(made).size() != 1) {
    return UpdateResult::Refuse(
        MakeFinding("KV206",
                    fmt::format("needs caches that the graph puts together, found an {} that keeps "
                                "{} by itself",
                                graph.node(made).op_type(), graph.name(pair.past)),
                    graph, {made}, {pair.past}));
  }
  if (append->length->kind() != Kind::kDim) {
    return UpdateResult::Refuse(
        MakeFinding("KV202",
                    fmt::format("needs a past of variable length, found {} = {}",
                                graph.name(pair.past), sym::ToString(append->length, &graph)),
                    graph, {node}, {pair.past}));
  }
  CacheUpdate update(pair, AppendAll{append->length});
  update.reordered_past = append->reordered_past;
  update.axis = append->axis;
  update.layout = LayoutOfRows(forms, pair, append->axis, append->update);
  update.node = node;
  std::vector<Expr> shape = forms.Of(pair.past).shape;
  if (update.layout.empty()) {
    return UpdateResult::Refuse(MakeFinding(
        "KV217", fmt::format("needs a past of rank 3 to 6, found rank {}", shape.size()), graph,
        {node}, {pair.past}));
  }
  if (!ReordersSequencesOnly(forms.pool(), update)) return UpdateResult::NotThis();
  update.new_length = forms.pool().Sub(forms.Of(pair.present).shape[append->axis], append->length);
  if (CountsSequences(forms, update)) {
    return UpdateResult::Refuse(MakeFinding(
        "KV209",
        fmt::format("needs a row for each new token, found {} rows, which counts sequences",
                    sym::ToString(update.new_length, &graph)),
        graph, {node}, {pair.past, pair.present}));
  }
  update.update_element = append->update;
  shape[append->axis] = update.new_length;
  update.update = FindValue(forms, pair.present, update.update_element, shape, update.axis,
                            forms.ElementType(pair.past));
  return UpdateResult::Match(std::move(update));
}

}  // namespace

const Rule& growing_concat() {
  static const Rule rule = {"growing_concat",
                            "a growing cache: the new tokens are put behind the past",
                            &MatchGrowingConcat, nullptr};
  return rule;
}

}  // namespace kvlift::rewrites
