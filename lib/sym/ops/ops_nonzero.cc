// NonZero. Its indices are known if its operand is true everywhere, or is assumed to be.
#include <algorithm>
#include <iterator>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "ir/types.h"
#include "sym/forms/forms_engine.h"

namespace kvlift::sym::internal {
namespace {

// Returns the number in a sum.
int64_t NumberIn(Expr e) {
  int64_t number = e->kind() == Kind::kInteger ? e->value() : 0;
  for (const Term& term : e->terms()) number += term.atoms.empty() ? term.coefficient : 0;
  return number;
}

// Returns all values that v is computed from, itself included, up to a number of nodes.
absl::flat_hash_set<ValueId> Behind(const Graph& graph, ValueId v) {
  constexpr size_t kMost = 64;
  std::vector<ValueId> stack = {v};
  absl::flat_hash_set<ValueId> seen = {v};
  while (!stack.empty() && seen.size() < kMost) {
    const NodeId n = graph.producer(stack.back());
    stack.pop_back();
    if (n == kNoNode) continue;
    for (ValueId input : graph.inputs(n)) {
      if (input != kNoValue && seen.insert(input).second) stack.push_back(input);
    }
  }
  return seen;
}

// Returns true for operators that hand on the elements of operand 0.
bool Moves(const Graph& graph, NodeId n) {
  constexpr std::string_view kMoves[] = {"Transpose", "Squeeze", "Unsqueeze", "Reshape",
                                         "Identity",  "Cast",    "Expand"};
  return std::any_of(std::begin(kMoves), std::end(kMoves),
                     [&](std::string_view op_type) { return graph.Is(n, op_type); });
}

// Calls `visit` with each use of v and of the values that `handed_on` says are made of it.
template <typename HandedOn, typename Visit>
void ForUsesBehind(const Graph& graph, ValueId v, HandedOn handed_on, Visit visit) {
  constexpr size_t kMost = 64;
  std::vector<ValueId> values = {v};
  for (size_t k = 0; k < values.size() && k < kMost; ++k) {
    for (const Use& use : graph.uses(values[k])) {
      if (use.kind != Use::Kind::kNodeInput) continue;
      visit(use);
      const ValueId made = graph.outputs(use.node)[0];
      const bool known = std::find(values.begin(), values.end(), made) != values.end();
      if (!known && handed_on(use)) values.push_back(made);
    }
  }
}

bool IsScatter(const Graph& graph, NodeId n) {
  return graph.Is(n, "ScatterND") || graph.Is(n, "ScatterElements");
}

// Returns true if a scatter writes into a buffer that the host gives.
bool WritesIntoInput(const Graph& graph, NodeId scatter) {
  ValueId data = graph.inputs(scatter)[0];
  for (NodeId n = graph.producer(data); n != kNoNode; n = graph.producer(data)) {
    if (!Moves(graph, n) && !IsScatter(graph, n)) return false;
    data = graph.inputs(n)[0];
  }
  return graph.is_graph_input(data);
}

// Returns true if the numbers in v are, perhaps counted from the other end, the places at which a
// buffer of the host is written.
bool ArePlacesInBuffer(const Graph& graph, ValueId v) {
  bool are = false;
  const auto handed_on = [&](const Use& use) {
    const bool picks = graph.Is(use.node, "Gather") || graph.Is(use.node, "Slice");
    return ((Moves(graph, use.node) || picks) && use.index == 0) || graph.Is(use.node, "Concat") ||
           graph.Is(use.node, "Add") || (graph.Is(use.node, "Where") && use.index > 0);
  };
  ForUsesBehind(graph, v, handed_on, [&](const Use& use) {
    are = are || (IsScatter(graph, use.node) && use.index == 1 && WritesIntoInput(graph, use.node));
  });
  return are;
}

// Returns true if the places that the NonZero node finds pick elements, by a Gather, of integers
// that its operand is computed from, and these say where a buffer is written: rows whose places
// pass a test are kept, others are dropped.
bool KeepsTestedPlaces(const Engine& engine, NodeId n) {
  const Graph& graph = engine.graph();
  const absl::flat_hash_set<ValueId> tested = Behind(graph, graph.inputs(n)[0]);
  bool keeps = false;
  const auto handed_on = [&](const Use& use) { return Moves(graph, use.node) && use.index == 0; };
  ForUsesBehind(graph, graph.outputs(n)[0], handed_on, [&](const Use& use) {
    if (!graph.Is(use.node, "Gather") || use.index != 1) return;
    const ValueId data = graph.inputs(use.node)[0];
    keeps = keeps || (tested.contains(data) && IsIntegerType(engine.TypeOf(data)) &&
                      ArePlacesInBuffer(graph, graph.outputs(use.node)[0]));
  });
  return keeps;
}

// Returns the shape of a constant, or of an input as it is declared: a weight that is not read is
// an input of the joined graph of a proof. Empty if neither is known.
std::vector<Dim> ShapeOfTable(const Graph& graph, ValueId table) {
  std::vector<Dim> shape;
  if (const onnx::TensorProto* constant = graph.constant(table)) {
    for (int64_t size : constant->dims()) shape.push_back(Dim{size, {}});
  } else if (graph.producer(table) == kNoNode && graph.type(table).shape) {
    const auto& declared = *graph.type(table).shape;
    shape.assign(declared.begin(), declared.end());
  }
  return shape;
}

// Returns true if an input that the bounds are about is also the row of a table that has rows
// beyond `most`, as token ids are: it is then no place below that bound.
bool IndexesLongerTable(const Graph& graph, const std::vector<Expr>& bounds, int64_t most) {
  bool longer = false;
  const auto handed_on = [&](const Use& use) { return Moves(graph, use.node) && use.index == 0; };
  for (Expr load : LoadsOf(bounds[0]->args()[0])) {
    ForUsesBehind(graph, load->source(), handed_on, [&](const Use& use) {
      if (!graph.Is(use.node, "Gather") || use.index != 1) return;
      const std::vector<Dim> table = ShapeOfTable(graph, graph.inputs(use.node)[0]);
      const int64_t axis = IntAttribute(graph.node(use.node), "axis", 0);
      const int64_t k = axis + (axis < 0 ? std::ssize(table) : 0);
      if (k < 0 || k >= std::ssize(table)) return;
      longer = longer || table[static_cast<size_t>(k)].value.value_or(0) > most + 1;
    });
  }
  return longer;
}

// Returns true for the predicate that a number which the host gives is a place on an axis, perhaps
// one that is counted from its end: a <= x and x <= b, where a is not positive. Between two
// positive numbers it may be anything, such as a token id that stands for an image.
bool IsPlaceOnAxis(Pool& pool, const Graph& graph, const std::vector<Expr>& bounds) {
  const auto is_bound = [](Expr bound) { return bound->kind() == Kind::kLe; };
  if (bounds.size() != 2 || !std::all_of(bounds.begin(), bounds.end(), is_bound)) return false;
  const Expr one = bounds[0]->args()[0], other = bounds[1]->args()[0];
  const Expr span = pool.Add(one, other);  // x is in both, with opposite signs
  const auto is_upper = [](Expr e) {
    return std::any_of(e->terms().begin(), e->terms().end(), [](const Term& term) {
      return term.coefficient > 0 && term.atoms.size() == 1 && term.atoms[0]->kind() == Kind::kLoad;
    });
  };
  const Expr lower = is_upper(one) || one->kind() == Kind::kLoad ? other : one;
  const Expr upper = lower == one ? other : one;
  const bool is_place =
      NumberIn(lower) <= 0 && !LoadsOf(one).empty() && LoadsOf(span).empty() && !span->has_index();
  if (!is_place || span->kind() != Kind::kInteger) return is_place;
  return !IndexesLongerTable(graph, bounds, -NumberIn(upper));
}

// Takes all elements of a vector to be true that says whether numbers lie within bounds, if only
// those that do are kept: rows of an update whose places lie outside of a buffer are dropped.
// Returns false for other vectors.
bool TakeAllWithinBounds(OpContext& c) {
  Pool& pool = c.pool();
  const Value& x = c.in(0);
  if (x.rank() != 1 || !x.form.element->is_predicate()) return false;
  if (!KeepsTestedPlaces(c.engine(), c.node())) return false;
  const Facts within{x.form.shape};
  const std::vector<Expr> bounds = ConjunctsOf(x.form.element);
  if (!IsPlaceOnAxis(pool, c.engine().graph(), bounds) ||
      !c.engine().IsGivenByHost(bounds[0]->args()[0])) {
    return false;
  }
  for (Expr bound : bounds) {
    c.AssumeNonNegative(AssumptionReason::kInside, pool.Neg(bound->args()[0]), within,
                        "the bounds of all elements");
  }
  return true;
}

// Sets the result to the places of all elements, in their order: column j has the indices of
// element j.
void SetAllPlaces(OpContext& c) {
  const Shape shape = c.in(0).form.shape;
  Pool& pool = c.pool();
  Expr count = pool.Integer(1);
  for (const Expr extent : shape) count = pool.Mul(count, extent);
  c.Set(0, {pool.Integer(static_cast<int64_t>(shape.size())), count},
        [&](Indices ix, const Facts& facts) {
          Expr rest = ix[1], place = nullptr;
          for (size_t k = shape.size(); k-- > 0;) {
            const Expr own = k == 0 ? rest : pool.Mod(rest, shape[k], facts);
            rest = pool.FloorDiv(rest, shape[k], facts);
            const Expr here = pool.Le(ix[0], pool.Integer(static_cast<int64_t>(k)), facts);
            place = place == nullptr ? own : c.engine().Select(here, own, place);
          }
          return place;
        });
}

}  // namespace

// If the input is true everywhere, the result holds all indices.
void OpNonZero(OpContext& c) {
  if (!c.Known(1) || c.output(0) == kNoValue) return;
  const Value& x = c.in(0);
  const Facts within{x.form.shape};
  const Expr truth = x.rank() > 0 ? c.engine().AsPredicate(x.form.element) : nullptr;
  if (truth != nullptr && c.pool().Prove(truth, within) == Truth::kYes) return SetAllPlaces(c);
  if (TakeAllWithinBounds(c)) return SetAllPlaces(c);
  c.SetOpaque(0, {c.pool().Integer(std::max(1, x.rank())), c.engine().OwnDim(c.output(0), 1)});
}

}  // namespace kvlift::sym::internal
