// NonZero. Its indices are known if its operand is true everywhere, or is assumed to be.
#include <algorithm>
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

// Returns true for the predicate that a number which the host gives is a place on an axis, perhaps
// one that is counted from its end: a <= x and x <= b, where a is not positive. Between two
// positive numbers it may be anything, such as a token id that stands for an image.
bool IsPlaceOnAxis(Pool& pool, const std::vector<Expr>& bounds) {
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
  return NumberIn(lower) <= 0 && !LoadsOf(one).empty() && LoadsOf(span).empty() &&
         !span->has_index();
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

// Returns true if the places that the NonZero node finds pick elements, by a Gather, of integers
// that its operand is computed from: those that pass a test are kept.
bool KeepsTestedNumbers(const Engine& engine, NodeId n) {
  const Graph& graph = engine.graph();
  const absl::flat_hash_set<ValueId> tested = Behind(graph, graph.inputs(n)[0]);
  std::vector<ValueId> places = {graph.outputs(n)[0]};
  for (size_t k = 0; k < places.size(); ++k) {
    for (const Use& use : graph.uses(places[k])) {
      if (use.kind != Use::Kind::kNodeInput) continue;
      if (graph.Is(use.node, "Gather") && use.index == 1) {
        const ValueId data = graph.inputs(use.node)[0];
        if (tested.contains(data) && IsIntegerType(engine.TypeOf(data))) return true;
      }
      const bool moves = graph.Is(use.node, "Transpose") || graph.Is(use.node, "Squeeze") ||
                         graph.Is(use.node, "Reshape") || graph.Is(use.node, "Identity") ||
                         graph.Is(use.node, "Cast");
      if (moves && use.index == 0) places.push_back(graph.outputs(use.node)[0]);
    }
  }
  return false;
}

// Takes all elements of a vector to be true that says whether numbers lie within bounds, if only
// those that do are kept: rows of an update whose places lie outside of a buffer are dropped.
// Returns false for other vectors.
bool TakeAllWithinBounds(OpContext& c) {
  Pool& pool = c.pool();
  const Value& x = c.in(0);
  if (x.rank() != 1 || !x.form.element->is_predicate()) return false;
  if (!KeepsTestedNumbers(c.engine(), c.node())) return false;
  const Facts within{x.form.shape};
  const std::vector<Expr> bounds = ConjunctsOf(x.form.element);
  if (!IsPlaceOnAxis(pool, bounds) || !c.engine().IsGivenByHost(bounds[0]->args()[0])) {
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
