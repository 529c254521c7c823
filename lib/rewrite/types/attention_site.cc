#include "rewrite/types/attention_site.h"

#include "base/overloaded.h"

namespace kvlift {

bool IsBatchTimesHeads(const AttentionSite& site) {
  return std::visit(
      Overloaded{[](const AttentionOperator&) { return false; },
                 [](const AttentionSpelledOut& spelled) { return spelled.batch_times_heads; }},
      site.spelling);
}

bool GivesZeroWithoutKeys(const AttentionSite& site) {
  if (site.sink != nullptr) return true;
  return std::visit(
      Overloaded{[](const AttentionOperator& source) { return source.states_length; },
                 [](const AttentionSpelledOut& spelled) { return spelled.nan_guard; }},
      site.spelling);
}

std::vector<sym::Expr> QueryShape(sym::Forms& forms, const AttentionSite& site) {
  std::vector<sym::Expr> shape = forms.Of(site.query).shape;
  if (shape.size() == 4) return shape;
  sym::Pool& pool = forms.pool();
  const sym::Expr heads = pool.Integer(site.q_heads);
  shape[0] = pool.FloorDiv(shape[0], heads, {});
  shape.insert(shape.begin() + 1, heads);
  return shape;
}

}  // namespace kvlift
