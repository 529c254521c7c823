// Lemma short-mask. If the mask of an Attention-24 has W columns and there are T > W keys,
//
//   visible(b, h, s, t) = t < W and mask[b, h, s, t]
//
// The mask's other axes are broadcast; the last one is instead padded with values that hide. Side
// condition: t < W, because a key behind the last column has no element of the mask. Source: ONNX
// Attention-24, input attn_mask.
#pragma once

#include <optional>
#include <utility>
#include <vector>

#include "sym/forms/forms.h"

namespace kvlift {

struct MaskShape {
  std::vector<sym::Expr> at;  // by axis of the mask: its index, i0..i3 or 0
  sym::Expr width = nullptr;  // W
  bool is_short = false;      // W is not shown to equal T
  // Pairs of extents that have to be equal, or an axis other than the last would be broadcast.
  std::vector<std::pair<sym::Expr, sym::Expr>> equal_extents;
};

// Reads a mask of 1 to 4 axes. `extents`: B, N, S and T of the attention. Returns nullopt for other
// ranks, and for a mask of one column with several keys, which implementations either broadcast or
// pad.
std::optional<MaskShape> ReadMaskShape(sym::Forms& forms, ValueId mask, const sym::Facts& extents);

}  // namespace kvlift
