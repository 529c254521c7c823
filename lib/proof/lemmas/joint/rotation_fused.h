// Lemma rotation-fused (RoPE). With x = (x1, x2), the halves of a head, y = RotaryEmbedding(x, cos,
// sin) is
//
//   y1[d] = x1[d] cos[b, s, d] - x2[d] sin[b, s, d]
//   y2[d] = x2[d] cos[b, s, d] + x1[d] sin[b, s, d]        for d < D / 2
//
// It equals the source's sums of products if both are the same polynomials. Side conditions: the
// operator rotates halves and not neighbours (interleaved = 0), over the whole head, with tables of
// one row for each sequence and token and D / 2 columns, as the operator requires. The source's own
// tables may repeat their columns. Source: ONNX RotaryEmbedding-23.
#pragma once

#include "proof/correspondence/correspondence.h"
#include "proof/graphs/pair.h"

namespace kvlift {

// Returns true if node `mine`, a RotaryEmbedding of the converted model over [B, N, S, D], computes
// the source's value `theirs`: each element is the same sum of products.
bool IsRotationOf(const GraphPair& pair, const Correspondence& twins, NodeId mine, ValueId theirs);

}  // namespace kvlift
