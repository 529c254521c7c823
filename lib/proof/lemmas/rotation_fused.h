// Lemma rotation-fused. With x = (x1, x2), the halves of a head, RotaryEmbedding(x, cos, sin) is
//
//   y1[d] = x1[d] cos[b, s, d] - x2[d] sin[b, s, d]
//   y2[d] = x2[d] cos[b, s, d] + x1[d] sin[b, s, d]        for d < D / 2
//
// So it is the source's sums of products if these are the same polynomials. Side conditions: pairs
// are halves and not neighbours, the whole head is rotated, and the tables have a row for each
// sequence and token and D / 2 columns, which the operator refuses otherwise; the source's own
// tables repeat themselves. Source: ONNX's text of RotaryEmbedding-23.
#pragma once

#include "proof/correspondence.h"
#include "proof/pair.h"

namespace kvlift {

// Whether a RotaryEmbedding of the conversion computes what the source spells out: each element of
// its result is the same sum of products as the source's element at that place.
bool IsRotationOf(const GraphPair& pair, const Correspondence& twins, NodeId mine, ValueId theirs);

}  // namespace kvlift
