// The shapes of operators with a state of fixed size, as hybrid decoders have them beside
// attention. Elements are opaque. Source: the texts of ONNX opset 27 and of com.microsoft, ONNX
// Runtime 1.31.
#include <algorithm>
#include <utility>

#include "sym/forms/forms_engine.h"

namespace kvlift::sym::internal {
namespace {

// Gives result 1, the next state, the shape of the operand that is the state.
void SetNextState(OpContext& c, int state) {
  if (c.has(state) && c.in(state).form.known_rank) c.SetOpaque(1, c.in(state).form.shape);
}

}  // namespace

// CausalConvWithState: the result has the shape of the input.
void OpStateConvolution(OpContext& c) {
  if (!c.Known(1)) return;
  c.SetOpaque(0, c.in(0).form.shape);
  SetNextState(c, 3);
}

// LinearAttention: queries [B, T, Hq * D], values [B, T, Hk * Dv], and the result [B, T, H * Dv]
// with the larger of both numbers of heads.
void OpLinearAttention(OpContext& c) {
  constexpr int kValue = 2;
  const int64_t queries = c.Int("q_num_heads", 0), values = c.Int("kv_num_heads", 0);
  if (!c.Known(3) || c.in(0).rank() != 3 || c.in(kValue).rank() != 3) return;
  if (queries < 1 || values < 1) return;
  Pool& pool = c.pool();
  const Expr size = pool.FloorDiv(c.in(kValue).dim(2), pool.Integer(values), Facts{});
  c.SetOpaque(
      0, {c.in(0).dim(0), c.in(0).dim(1), pool.Mul(pool.Integer(std::max(queries, values)), size)});
  SetNextState(c, 3);
}

// LinearAttentionGate: both results have the shape of the first operand.
void OpLinearAttentionGate(OpContext& c) {
  if (!c.Known(1)) return;
  for (int k = 0; k < c.num_outputs(); ++k) c.SetOpaque(k, c.in(0).form.shape);
}

// GatedDeltaNet: the result has the shape of the values, of which there are as many heads as
// queries have or more. Without values, which are then packed with the queries, its shape is not
// known.
void OpGatedDeltaNet(OpContext& c) {
  constexpr int kValue = 2, kState = 6;
  if (c.has(kValue) && c.in(kValue).form.known_rank) c.SetOpaque(0, c.in(kValue).form.shape);
  SetNextState(c, kState);
}

}  // namespace kvlift::sym::internal
