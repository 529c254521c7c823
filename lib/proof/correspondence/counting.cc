#include "proof/correspondence/counting.h"

#include <algorithm>

#include "ir/types.h"

namespace kvlift {

using sym::Expr;
using sym::Kind;

Expr Counting::CountedUp(Expr e, const Predicate& counts_up, const sym::Facts& facts,
                         std::vector<std::string>* vectors) {
  if (e == nullptr) return nullptr;
  sym::Pool& pool = forms_.pool();
  const Graph& graph = forms_.graph();
  sym::Pool::Substitution s;
  for (Expr load : sym::LoadsOf(e)) {
    const ValueId source = load->source();
    if (!graph.is_graph_input(source) || !IsIntegerType(forms_.ElementType(source))) continue;
    const std::string& name = graph.name(source);
    if (load->args().empty() || !counts_up(name)) continue;
    const Expr last = load->args().back();
    if (last->kind() == Kind::kInteger) continue;
    std::vector<Expr> first(load->args().begin(), load->args().end());
    first.back() = pool.Integer(0);
    s.atoms[load] = pool.Add(pool.Load(source, first), last);
    if (std::find(vectors->begin(), vectors->end(), name) == vectors->end()) {
      vectors->push_back(name);
    }
  }
  return s.atoms.empty() ? e : pool.Substitute(e, s, facts);
}

}  // namespace kvlift
