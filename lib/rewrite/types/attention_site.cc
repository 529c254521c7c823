#include "rewrite/types/attention_site.h"

#include "base/overloaded.h"

namespace kvlift {

HeadAxes HeadAxesOf(const AttentionSite& site) {
  const auto* spelled = std::get_if<AttentionSpelledOut>(&site.spelling);
  return spelled == nullptr ? HeadsOnAnAxis() : spelled->heads;
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
  if (shape.size() == 3) {
    shape[0] = pool.FloorDiv(shape[0], heads, {});
  } else {
    shape.erase(shape.begin() + 1, shape.begin() + 3);
  }
  shape.insert(shape.begin() + 1, heads);
  return shape;
}

}  // namespace kvlift
