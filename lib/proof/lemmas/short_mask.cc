#include "proof/lemmas/short_mask.h"

namespace kvlift {

using sym::Expr;

std::optional<MaskShape> ReadMaskShape(sym::Forms& forms, ValueId mask, const sym::Facts& extents) {
  constexpr size_t kRank = 4, kKeys = 3;
  sym::Pool& pool = forms.pool();
  const sym::Form form = forms.Of(mask);
  if (!form.known_rank || form.shape.empty() || form.shape.size() > kRank) return std::nullopt;
  MaskShape shape;
  shape.width = form.shape.back();
  shape.is_short = shape.width != extents.extents[kKeys];
  if (shape.is_short && shape.width->is_integer(1)) return std::nullopt;
  for (size_t k = kRank - form.shape.size(); k < kRank; ++k) {
    const Expr extent = form.shape[k + form.shape.size() - kRank];
    if (k == kKeys || !extent->is_integer(1)) {
      shape.at.push_back(pool.Index(static_cast<int>(k)));
    } else {
      shape.at.push_back(pool.Integer(0));
    }
    if (k != kKeys && !extent->is_integer(1)) {
      shape.equal_extents.emplace_back(extent, extents.extents[k]);
    }
  }
  return shape;
}

}  // namespace kvlift
