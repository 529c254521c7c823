#include "rewrite/recognise/attention/probabilities.h"

#include "sym/forms/row_softmax.h"

namespace kvlift {
namespace {

using sym::Expr;
using sym::Kind;

// A condition that says whether an element is NaN.
struct NanTest {
  Expr tested = nullptr;  // null if the condition says anything else
  bool is_nan = true;     // false if it holds where the element is not NaN
};

NanTest ReadNanTest(sym::Forms& forms, Expr condition, const sym::Facts& facts) {
  const Graph& graph = forms.graph();
  switch (condition->kind()) {
    case Kind::kNot:
    case Kind::kEq: {
      NanTest test = ReadNanTest(forms, condition->args()[0], facts);
      test.is_nan = !test.is_nan;
      return test;
    }
    case Kind::kApply:
      return condition->function() == "isnan" ? NanTest{condition->args()[0]} : NanTest{};
    case Kind::kLoad: {
      const NodeId n = graph.producer(condition->source());
      if (n == kNoNode || !graph.Is(n, "IsNaN")) return {};
      return {BroadcastOperand(forms, graph.inputs(n)[0], condition->args(), facts)};
    }
    default:
      return {};
  }
}

// Looks through all nodes that pass an element on. Casts keep NaN a NaN.
Expr Behind(sym::Forms& forms, Expr e, const sym::Facts& facts) {
  Roundings any;
  while (e != nullptr && e->kind() == Kind::kLoad) {
    const NodeId n = forms.graph().producer(e->source());
    const ValueId same = n == kNoNode ? kNoValue : HandedOn(forms, n, &any);
    if (same == kNoValue) break;
    e = BroadcastOperand(forms, same, e->args(), facts);
  }
  return e;
}

// Returns the element x of a guard that gives 0 where x is NaN and x elsewhere; null if `select` is
// not such a guard.
Expr Guarded(sym::Forms& forms, Expr select, const sym::Facts& facts) {
  const NanTest test = ReadNanTest(forms, select->args()[0], facts);
  if (test.tested == nullptr || !select->args()[test.is_nan ? 1 : 2]->is_integer(0)) return nullptr;
  const Expr kept = select->args()[test.is_nan ? 2 : 1];
  return Behind(forms, kept, facts) == Behind(forms, test.tested, facts) ? kept : nullptr;
}

}  // namespace

Probabilities ReadProbabilities(sym::Forms& forms, Expr e, const sym::Facts& facts) {
  const Graph& graph = forms.graph();
  Probabilities p;
  while (e != nullptr) {
    if (p.keep == nullptr) {
      if (const auto masked = sym::ReadRenormalised(forms, e, facts)) {
        p.nodes.push_back(masked->node);
        p.keep = masked->keep;
        p.nan_guard |= masked->guarded;
        e = masked->weight;
        continue;
      }
    }
    if (e->kind() == Kind::kSelect) {
      e = Guarded(forms, e, facts);
      p.nan_guard = true;
      continue;
    }
    if (e->kind() != Kind::kLoad) return {};
    const NodeId n = graph.producer(e->source());
    if (n == kNoNode) return {};
    p.nodes.push_back(n);
    if (const auto softmax = sym::ReadRowSoftmax(forms, n)) {
      const bool wide = sym::KeepsSmallWeights(forms.ElementType(graph.outputs(n)[0]));
      if (p.keep != nullptr && !(wide && p.roundings.empty())) return {};
      p.softmax = n;
      p.scores = softmax->scores;
      p.args.assign(e->args().begin(), e->args().end());
      return p;
    }
    const ValueId same = HandedOn(forms, n, &p.roundings);
    if (same == kNoValue) return {};
    e = BroadcastOperand(forms, same, e->args(), facts);
  }
  return {};
}

SoftmaxRow ReadSoftmaxRow(sym::Forms& forms, const Probabilities& p, Expr t, Expr keys) {
  sym::Pool& pool = forms.pool();
  const sym::Form& weights = forms.Of(forms.graph().outputs(p.softmax)[0]);
  if (!weights.known_rank || weights.shape.empty()) return {};
  const Expr own = p.args.back(), more = pool.Sub(weights.shape.back(), keys);
  if (more->is_integer(0)) return {own == t};
  if (!more->is_integer(1)) return {};
  if (own == t) return {true, keys};
  return {own == pool.Add(t, pool.Integer(1)), pool.Integer(0)};
}

}  // namespace kvlift
