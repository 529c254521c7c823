#include "proof/layers/layer_boundaries.h"

namespace kvlift {
namespace {

using sym::Expr;
using sym::Facts;

bool SameShape(const GraphPair& pair, const Correspondence& twins, ValueId in, ValueId out,
               bool of_after) {
  sym::Forms& forms = pair.forms();
  const sym::Form x = forms.Of(in), y = forms.Of(out);
  if (!x.known_rank || !y.known_rank || x.shape.size() != y.shape.size() ||
      forms.ElementType(in) != forms.ElementType(out)) {
    return false;
  }
  const auto size = [&](Expr e) {
    return of_after ? twins.Extent(e, forms.pool().Index(0)) : twins.Normal(e, Facts{});
  };
  for (size_t k = 0; k < x.shape.size(); ++k) {
    const Expr a = size(x.shape[k]);
    if (a == nullptr || a != size(y.shape[k])) return false;
  }
  return true;
}

}  // namespace

std::string WhyInductionFails(const LayerBoundary& boundary, const GraphPair& pair,
                              const Correspondence& twins, Nodes* nodes) {
  const ValueId mine_in = pair.After(boundary.after_in), mine_out = pair.After(boundary.after_out);
  const ValueId their_in = pair.Before(boundary.before_in),
                their_out = pair.Before(boundary.before_out);
  for (ValueId v : {mine_in, mine_out, their_in, their_out}) {
    if (v == kNoValue) return "it is not there";
  }
  const bool same = nodes->Compare(mine_in, their_in) == Sameness::kWhole &&
                    nodes->Compare(mine_out, their_out) == Sameness::kWhole;
  if (!same) return "it is not shown to be the source's";
  if (!SameShape(pair, twins, mine_in, mine_out, true) ||
      !SameShape(pair, twins, their_in, their_out, false)) {
    return "it is not shown to keep its shape";
  }
  return "";
}

}  // namespace kvlift
