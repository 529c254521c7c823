// present = the past with the new tokens behind it:
//
//   present[.., t, ..] = t < P ? past[.., t, ..] : update[.., t - P, ..]
//
// P is the past's extent along the sequence axis, wherever that axis is. How the graph puts the two
// together (Concat, Pad and Where, ScatterND into zeros) does not matter.
// Correct: a TensorScatter at write_indices = P writes the same rows behind the same past.
// Source: torch.onnx and Optimum exports with a dynamic cache.
#include "fmt/format.h"
#include "rewrite/match.h"
#include "rewrite/rule.h"

namespace kvlift::rewrites {
namespace {

using sym::Expr;
using sym::Kind;

std::string LayoutFor(int rank, int axis) {
  if (rank != 4) return {};
  switch (axis) {
    case 0:
      return "SBND";
    case 1:
      return "BSND";
    case 2:
      return "BNSD";
    default:
      return "BNDS";
  }
}

// The axis t and the bound c of a condition "i_t < c"; axis -1 if it is none.
struct Split {
  int axis = -1;
  Expr bound = nullptr;
};
Split ReadSplit(sym::Pool& pool, Expr condition, int rank) {
  if (condition->kind() != Kind::kLe) return {};
  for (int axis = 0; axis < rank; ++axis) {
    const auto linear = sym::LinearIn(pool, condition->args()[0], pool.Index(axis));
    if (!linear || linear->coefficient != 1) continue;
    for (int k = 0; k < rank; ++k) {
      if (sym::ContainsIndex(linear->rest, k)) return {};
    }
    return {axis, pool.Sub(pool.Integer(1), linear->rest)};
  }
  return {};
}

Finding Reversed(const Graph& graph, const CachePair& pair) {
  const NodeId node = graph.producer(pair.present);
  return MakeFinding(
      "KV203",
      fmt::format("needs the new tokens behind the past, found them in front: {} starts with what "
                  "is new, and {} moves",
                  graph.name(pair.present), graph.name(pair.past)),
      graph, {node}, {pair.past, pair.present});
}

Recognised<CacheUpdate> Match(sym::Forms& forms, const CachePair& pair) {
  using Result = Recognised<CacheUpdate>;
  const Graph& graph = forms.graph();
  sym::Pool& pool = forms.pool();
  const sym::Form past = forms.Of(pair.past);
  const sym::Form present = forms.Of(pair.present);
  if (!past.known_rank || !present.known_rank || past.shape.size() != present.shape.size()) {
    return Result::NotThis();
  }
  const int rank = static_cast<int>(past.shape.size());
  if (present.element->kind() != Kind::kSelect) return Result::NotThis();
  const Expr first = present.element->args()[1], second = present.element->args()[2];
  const Split split = ReadSplit(pool, present.element->args()[0], rank);
  if (split.axis < 0) return Result::NotThis();
  const Expr length = past.shape[split.axis];
  const std::vector<Expr> here = Indices(pool, rank);
  std::vector<Expr> shifted = here;
  shifted[split.axis] = pool.Sub(here[split.axis], split.bound);
  if (second == pool.Load(pair.past, shifted) && split.bound != length) {
    return Result::Refuse(Reversed(graph, pair));
  }
  if (split.bound != length || first != pool.Load(pair.past, here)) return Result::NotThis();

  CacheUpdate update;
  update.pair = pair;
  update.kind = "concat";
  update.axis = split.axis;
  update.layout = LayoutFor(rank, split.axis);
  update.growing = true;
  update.past_length = length;
  update.new_length = pool.Sub(present.shape[split.axis], length);
  update.node = graph.producer(pair.present);
  std::vector<Expr> shape = past.shape;
  shape[split.axis] = update.new_length;
  sym::Pool::Substitution behind;
  behind.indices.resize(rank, nullptr);
  behind.indices[split.axis] = pool.Add(here[split.axis], length);
  update.update_element = pool.Substitute(second, behind, sym::Facts{shape});
  if (length->kind() != Kind::kDim) {
    return Result::Refuse(
        MakeFinding("KV202",
                    fmt::format("needs a past of variable length, found {} = {}",
                                graph.name(pair.past), sym::ToString(length, &graph)),
                    graph, {update.node}, {pair.past}));
  }
  if (update.layout.empty()) {
    return Result::Refuse(MakeFinding("KV217",
                                      fmt::format("needs a past of rank 4, found rank {}", rank),
                                      graph, {update.node}, {pair.past}));
  }
  if (update.layout[0] != 'B') {
    return Result::Refuse(
        MakeFinding("KV217",
                    fmt::format("needs the batch in front of {}, found the sequence there",
                                graph.name(pair.past)),
                    graph, {update.node}, {pair.past}));
  }
  update.update = FindValue(forms, pair.present, update.update_element, shape);
  return Result::Match(std::move(update));
}

}  // namespace

const Rule& growing_concat() {
  static const Rule rule = {
      "growing_concat", "a growing cache: the new tokens are put behind the past", &Match, nullptr};
  return rule;
}

}  // namespace kvlift::rewrites
