#include "proof/lemmas/joint/longer_table.h"

#include "fmt/format.h"
#include "proof/lemmas/names.h"

namespace kvlift {
namespace {

using sym::Expr;
using sym::Facts;

bool CountsFromFront(sym::Forms& forms, const Correspondence& twins, ValueId indices) {
  sym::Pool& pool = forms.pool();
  const sym::Form form = forms.Of(indices);
  if (!form.known_rank) return false;
  const Facts facts{form.shape};
  const Expr not_negative = pool.Le(pool.Integer(0), form.element, facts);
  if (pool.Prove(not_negative, facts) == sym::Truth::kYes) return true;
  const Expr e = form.element;
  if (e->kind() != sym::Kind::kLoad || !forms.graph().is_graph_input(e->source())) return false;
  const std::string& name = forms.graph().name(e->source());
  twins.RestOn({AssumptionKind::kIndexRange, name, fmt::format("{} is not negative", name),
                AssumptionSource::kHost});
  return true;
}

constexpr int kDeepestTable = 4;

// Returns true if a <= b wherever `known` holds, with selects taken branch by branch.
bool IsAtMost(sym::Pool& pool, Equality& equality, Expr a, Expr b, Expr known, int depth) {
  const Expr split = a->kind() == sym::Kind::kSelect   ? a
                     : b->kind() == sym::Kind::kSelect ? b
                                                       : nullptr;
  if (split == nullptr || depth >= kDeepestTable) {
    return equality.Follows(known, pool.Le(a, b, Facts{}), Facts{});
  }
  for (int k : {1, 2}) {
    const Expr condition = split->args()[0], branch = split->args()[k];
    const Expr here = pool.And(known, k == 1 ? condition : pool.Not(condition));
    const bool first = split == a;
    if (!IsAtMost(pool, equality, first ? branch : a, first ? b : branch, here, depth + 1)) {
      return false;
    }
  }
  return true;
}

}  // namespace

bool LooksUpInLongerTable(sym::Forms& forms, const Correspondence& twins, Equality& equality,
                          ValueId indices, Expr their_rows, Expr my_rows) {
  sym::Pool& pool = forms.pool();
  if (!IsAtMost(pool, equality, their_rows, my_rows, twins.Fits(), 0)) {
    const Expr known = pool.And(twins.Fits(), twins.SourceFits());
    if (!IsAtMost(pool, equality, their_rows, my_rows, known, 0)) return false;
    twins.RestOn({AssumptionKind::kCapacity, "",
                  fmt::format("{} <= {}", sym::ToString(their_rows), sym::ToString(my_rows)),
                  AssumptionSource::kHost});
  }
  if (!CountsFromFront(forms, twins, indices)) return false;
  twins.RestOnLemma(lemmas::kLongerTable);
  return true;
}

}  // namespace kvlift
