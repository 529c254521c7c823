// Lemma short-mask. Where the mask of an Attention-24 has W columns and there are T > W keys,
//
//   visible(b, h, s, t) = t < W and mask[b, h, s, t]
//
// A mask's other axes are broadcast; the last one is not, but padded with what hides. Side
// condition: t < W. Without it a key behind the mask's last column would be looked up in a column
// that is not there. Source: ONNX's text of Attention-24, input attn_mask.
#pragma once

#include <optional>
#include <utility>
#include <vector>

#include "sym/forms.h"

namespace kvlift {

struct MaskShape {
  std::vector<sym::Expr> at;  // the place of i0..i3 in the mask
  sym::Expr width = nullptr;  // W
  bool is_short = false;      // it is not seen to be T
  // Extents that have to be equal, or another axis would be broadcast.
  std::vector<std::pair<sym::Expr, sym::Expr>> equal_extents;
};

// The places and extents of a mask of 1 to 4 axes; nullopt for others, and for one column beside
// several keys, which implementations broadcast or pad.
std::optional<MaskShape> ReadMaskShape(sym::Forms& forms, ValueId mask, const sym::Facts& extents);

}  // namespace kvlift
