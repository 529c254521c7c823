#include "proof/lemmas/mask_split.h"

#include <cmath>
#include <utility>

#include "proof/lemmas/exact_cast.h"
#include "proof/lemmas/finite_minimum.h"
#include "sym/forms/broadcast.h"

namespace kvlift {
namespace {

using sym::Expr;
using sym::Facts;
using sym::Kind;

constexpr int kDeepestMask = 64;

std::optional<Hiding> ByNumber(double number, Expr where) {
  if (!HidesKey(number)) return std::nullopt;
  Hiding hiding{where, {}};
  if (std::isfinite(number)) hiding.numbers.insert(number);
  return hiding;
}

class Splitter {
 public:
  Splitter(sym::Forms& forms, const Facts& facts, Grounds* grounds)
      : forms_(forms), pool_(forms.pool()), facts_(facts), grounds_(grounds) {}

  bool Read(Expr e, int depth) {
    if (e == nullptr || depth > kDeepestMask) return false;
    if (const auto hiding = HiddenBy(pool_, e)) return Hide(*hiding, hiding->where);
    if (e->kind() == Kind::kSelect) {
      const Expr c = e->args()[0];
      const auto a = HiddenBy(pool_, e->args()[1]), b = HiddenBy(pool_, e->args()[2]);
      if (b && b->everywhere()) return Read(e->args()[1], depth + 1) && Hide(*b, pool_.Not(c));
      if (a && a->everywhere()) return Read(e->args()[2], depth + 1) && Hide(*a, c);
    }
    if (e->kind() == Kind::kLoad) {
      const Graph& graph = forms_.graph();
      const NodeId n = graph.producer(e->source());
      if (n != kNoNode && graph.Is(n, "Add")) {
        const auto at = [&](int k) {
          return sym::BroadcastAt(forms_, graph.inputs(n)[k], e->args(), facts_);
        };
        return Read(at(0), depth + 1) && Read(at(1), depth + 1);
      }
      const Expr same = BeforeExactCast(forms_, e, facts_, grounds_);
      if (same != nullptr) return Read(same, depth + 1);
    }
    result_.bias.push_back(e);
    return true;
  }

  MaskAndBias Take() { return std::move(result_); }

 private:
  bool Hide(const Hiding& hiding, Expr where) {
    result_.hiding.where = pool_.Or(result_.hiding.where, where);
    result_.hiding.numbers.insert(hiding.numbers.begin(), hiding.numbers.end());
    return true;
  }

  sym::Forms& forms_;
  sym::Pool& pool_;
  const Facts& facts_;
  Grounds* grounds_;
  MaskAndBias result_{{pool_.False(), {}}, {}};
};

}  // namespace

std::optional<Hiding> HiddenBy(sym::Pool& pool, Expr e, double factor) {
  if (e == nullptr) return std::nullopt;
  switch (e->kind()) {
    case Kind::kInteger:
      if (e->value() == 0) return Hiding{pool.False(), {}};
      return ByNumber(static_cast<double>(e->value()) * factor, pool.True());
    case Kind::kFloat:
      return ByNumber(e->float_value() * factor, pool.True());
    case Kind::kSelect: {
      const Expr c = e->args()[0];
      auto a = HiddenBy(pool, e->args()[1], factor), b = HiddenBy(pool, e->args()[2], factor);
      if (!a || !b) return std::nullopt;
      a->where = pool.Or(pool.And(c, a->where), pool.And(pool.Not(c), b->where));
      a->numbers.merge(b->numbers);
      return a;
    }
    case Kind::kSum: {
      Hiding any{pool.False(), {}};
      for (const sym::Term& term : e->terms()) {
        if (term.atoms.size() != 1) return std::nullopt;
        const Expr atom = term.atoms[0];
        std::optional<Hiding> part;
        if (atom->is_predicate()) {
          part = ByNumber(static_cast<double>(term.coefficient) * factor, atom);
        } else if (term.coefficient == 1) {
          part = HiddenBy(pool, atom, factor);
        }
        if (!part) return std::nullopt;
        any.where = pool.Or(any.where, part->where);
        any.numbers.merge(part->numbers);
      }
      return any;
    }
    default:
      return std::nullopt;
  }
}

std::optional<MaskAndBias> SplitMask(sym::Forms& forms, Expr e, const Facts& facts,
                                     Grounds* grounds) {
  Splitter splitter(forms, facts, grounds);
  if (!splitter.Read(e, 0)) return std::nullopt;
  return splitter.Take();
}

Expr VisibleIn(sym::Pool& pool, const OperatorOrder& order, const Facts& facts) {
  const Expr s = pool.Index(2), t = pool.Index(3);
  Expr visible = pool.True();
  Expr offset = order.past;
  if (order.valid != nullptr) {
    visible = pool.Lt(t, order.valid, facts);
    offset = pool.Sub(order.valid, order.queries);
  }
  if (!order.causal) return visible;
  return pool.And(visible, pool.Le(t, pool.Add(s, offset), facts));
}

}  // namespace kvlift
