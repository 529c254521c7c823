#include "sym/ops/non_finite.h"

#include <algorithm>
#include <vector>

namespace kvlift::sym {

bool CountsNonFinite(Forms& forms, NodeId n) {
  const Graph& graph = forms.graph();
  const bool sum = graph.Is(n, "ReduceSum");
  const bool extremum = graph.Is(n, "ReduceMax") || graph.Is(n, "ReduceMin");
  if ((!sum && !extremum) || graph.inputs(n).empty()) return false;
  const Form form = forms.Of(graph.inputs(n)[0]);
  if (!form.known_rank) return false;
  const std::vector<Expr> loads = OuterLoadsOf(form.element);
  const auto tests = [&](Expr load) {
    const NodeId maker = graph.producer(load->source());
    return maker != kNoNode && (graph.Is(maker, "IsInf") || graph.Is(maker, "IsNaN"));
  };
  if (loads.empty() || !std::all_of(loads.begin(), loads.end(), tests)) return false;
  Pool& pool = forms.pool();
  Pool::Substitution finite;
  for (Expr load : loads) finite.atoms[load] = pool.Integer(0);
  const Expr rest = pool.Substitute(form.element, finite, Facts{form.shape});
  return rest->is_integer(0) || (extremum && rest->kind() == Kind::kInteger);
}

}  // namespace kvlift::sym
