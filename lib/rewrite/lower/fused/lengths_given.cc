#include "rewrite/lower/fused/lengths_given.h"

#include <algorithm>

namespace kvlift::fused {
namespace {

using sym::Expr;
using sym::Kind;

// Returns the first element of an integer tensor; null if its rank is not known.
Expr Element(Lowering& l, ValueId v) {
  const sym::Form form = l.forms().Of(v);
  if (!form.known_rank) return nullptr;
  std::vector<Expr> zeros(form.shape.size(), l.forms().pool().Integer(0));
  return l.forms().At(v, zeros, {});
}

// Replaces the largest of one number per sequence by that of the first sequence. They are the same
// where all masks hold ones.
Expr OfOneSequence(Lowering& l, Expr length) {
  if (length == nullptr) return nullptr;
  sym::Pool::Substitution first;
  for (Expr load : sym::OuterLoadsOf(length)) {
    const NodeId n = l.graph().producer(load->source());
    if (n == kNoNode || !l.graph().Is(n, "ReduceMax")) continue;
    const sym::Form numbers = l.forms().Of(l.graph().inputs(n)[0]);
    if (!numbers.known_rank || numbers.shape.empty() || numbers.shape.size() > 2) continue;
    sym::Pool::Substitution counts;
    for (Expr count : sym::OuterLoadsOf(numbers.element)) {
      counts.atoms[count] = l.forms().pool().Integer(0);
    }
    if (l.forms().pool().Substitute(numbers.element, counts, {})->has_index()) continue;
    first.atoms[load] = Element(l, l.graph().inputs(n)[0]);
  }
  return first.atoms.empty() ? length : l.forms().pool().Substitute(length, first, {});
}

// Returns the input of rank 2 whose rows the node sums up, if the sum of a row of ones is its
// length; kNoValue otherwise.
ValueId CountedMask(Lowering& l, NodeId n) {
  const Graph& graph = l.graph();
  if (n == kNoNode || !graph.Is(n, "ReduceSum")) return kNoValue;
  sym::Pool& pool = l.forms().pool();
  const ValueId counted = graph.inputs(n)[0];
  const sym::Form x = l.forms().Of(counted), y = l.forms().Of(graph.outputs(n)[0]);
  if (!x.known_rank || x.shape.size() != 2 || !y.known_rank || y.shape.empty()) return kNoValue;
  const auto axes =
      graph.inputs(n).size() > 1 ? l.forms().Elements(graph.inputs(n)[1]) : std::nullopt;
  if (!axes || axes->size() != 1) return kNoValue;
  if (!(*axes)[0]->is_integer(1) && !(*axes)[0]->is_integer(-1)) return kNoValue;
  const std::vector<Expr> loads = sym::OuterLoadsOf(x.element);
  if (loads.empty()) return kNoValue;
  const ValueId mask = loads[0]->source();
  if (!graph.is_graph_input(mask)) return kNoValue;
  sym::Pool::Substitution ones;
  for (Expr load : loads) {
    const bool here = load->source() == mask && load->args().size() == 2 &&
                      load->args()[0] == pool.Index(0) && load->args()[1] == pool.Index(1);
    if (!here) return kNoValue;
    ones.atoms[load] = pool.Integer(1);
  }
  return pool.Substitute(x.element, ones, {})->is_integer(1) ? mask : kNoValue;
}

}  // namespace

std::string WhyNotWholeLengths(Lowering& l, const LengthsGiven& given,
                               std::vector<ValueId>* masks) {
  const NodeId n = given.node;
  sym::Pool& pool = l.forms().pool();
  const Expr count = Element(l, l.graph().inputs(n)[given.last]);
  const Expr total = OfOneSequence(l, Element(l, l.graph().inputs(n)[given.total]));
  if (count == nullptr || total == nullptr) return "needs lengths of known rank";
  const Expr rows = given.rows != nullptr ? given.rows : l.Form(n, given.past).shape[2];
  const Expr whole = pool.Add(rows, l.Form(n, given.query).shape[1]);
  sym::Pool::Substitution s;
  const auto counts_masks = [&](Expr length) {
    for (Expr load : sym::OuterLoadsOf(length)) {
      const ValueId mask = CountedMask(l, l.graph().producer(load->source()));
      const auto& place = load->args();
      const bool first =
          std::all_of(place.begin(), place.end(), [](Expr index) { return index->is_integer(0); });
      if (mask == kNoValue || !first) return false;
      masks->push_back(mask);
      const Expr width = l.forms().Of(mask).shape[1];
      if (width->kind() == Kind::kDim) s.dims[width->dim()] = whole;
      s.atoms[load] = whole;
    }
    return true;
  };
  if (!counts_masks(count)) return "needs seqlens_k that is counted from a mask or told by shapes";
  const Expr last = pool.Sub(whole, pool.Integer(1));
  if (pool.Substitute(count, s, {}) != last) return "needs seqlens_k that is P + S - 1";
  if (!counts_masks(total) || pool.Substitute(total, s, {}) != whole) {
    return "needs a total_sequence_length that is P + S";
  }
  return {};
}

}  // namespace kvlift::fused
