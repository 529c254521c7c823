// Attention operators: their result is real arithmetic, but their presents are data that moves.
// Source: ONNX Attention-24; com.microsoft MultiHeadAttention.
#include <optional>

#include "sym/forms/forms_engine.h"

namespace kvlift::sym::internal {
namespace {

// Query, key or value of an attention as [B, heads, length, D], whether it has rank 3 or 4.
struct Operand {
  const Value* value = nullptr;
  int64_t heads = 0;  // number of heads of an operand of rank 3
  Shape shape;
};

std::optional<Operand> ReadOperand(OpContext& c, int input, std::string_view heads_attribute) {
  const Value& x = c.in(input);
  Operand operand{&x, c.Int(heads_attribute, 0), x.form.shape};
  if (x.rank() == 4) return operand;
  if (x.rank() != 3 || operand.heads < 1) return std::nullopt;
  Pool& pool = c.pool();
  const Expr heads = pool.Integer(operand.heads);
  operand.shape = {x.dim(0), heads, x.dim(1), pool.FloorDiv(x.dim(2), heads, Facts{})};
  return operand;
}

Expr OperandAt(OpContext& c, const Operand& operand, Indices ix, const Facts& facts) {
  if (operand.value->rank() == 4) return c.engine().At(*operand.value, ix, facts);
  Pool& pool = c.pool();
  const Expr place = pool.Add(pool.Mul(ix[1], operand.shape[3]), ix[3]);
  const Expr own[] = {ix[0], ix[2], place};
  return c.engine().At(*operand.value, own, facts);
}

// Sets a present as its past with the operand appended on the sequence axis. Returns the present's
// length, or null if the past does not have rank 4.
Expr SetPresent(OpContext& c, int output, int past, const Operand& operand) {
  Shape out = operand.shape;
  const bool grows = c.has(past) && c.in(past).form.known_rank && c.in(past).rank() == 4;
  if (c.has(past) && !grows) return nullptr;
  Pool& pool = c.pool();
  const Expr before = grows ? c.in(past).dim(2) : pool.Integer(0);
  out[2] = pool.Add(before, out[2]);
  const Expr total = out[2];
  c.Set(output, std::move(out), [&](Indices ix, const Facts& facts) -> Expr {
    std::vector<Expr> own(ix.begin(), ix.end());
    own[2] = pool.Sub(ix[2], before);
    const Expr fresh = OperandAt(c, operand, own, facts);
    if (!grows || fresh == nullptr) return fresh;
    const Expr old = c.engine().At(c.in(past), ix, facts);
    return c.engine().Select(pool.Lt(ix[2], before, facts), old, fresh);
  });
  return total;
}

}  // namespace

void OpAttentionOp(OpContext& c) {
  if (!c.Known(3)) return;
  const auto q = ReadOperand(c, 0, "q_num_heads");
  const auto k = ReadOperand(c, 1, "kv_num_heads");
  const auto v = ReadOperand(c, 2, "kv_num_heads");
  if (!q || !k || !v) return;
  Pool& pool = c.pool();
  const Expr total = SetPresent(c, 1, 4, *k);
  SetPresent(c, 2, 5, *v);
  if (c.in(0).rank() == 3) {
    c.SetOpaque(0, {q->shape[0], q->shape[2], pool.Mul(q->shape[1], v->shape[3])});
  } else {
    c.SetOpaque(0, {q->shape[0], q->shape[1], q->shape[2], v->shape[3]});
  }
  if (total != nullptr) c.SetOpaque(3, {q->shape[0], q->shape[1], q->shape[2], total});
}

// MultiHeadAttention of com.microsoft: the query is [B, S, N*D], and key and value are [B, T, N*D]
// or [B, N, T, D]. A bias is added to the projections before they are stored, and an input past
// length makes the past a shared buffer. In both cases the presents are opaque.
void OpMultiHeadAttention(OpContext& c) {
  constexpr int kBias = 3, kPast = 6, kPastLength = 8;
  if (!c.Known(1)) return;
  const Shape q = c.in(0).form.shape;
  if (q.size() != 3) return;
  const bool separate = c.Known(3) && (c.in(1).rank() == 3 || c.in(1).rank() == 4) &&
                        (c.in(2).rank() == 3 || c.in(2).rank() == 4);
  if (!separate) return;
  const auto k = ReadOperand(c, 1, "num_heads"), v = ReadOperand(c, 2, "num_heads");
  if (!k || !v) return;
  c.SetOpaque(0, {q[0], q[1], c.pool().Mul(v->shape[1], v->shape[3])});
  if (c.has(kBias) || c.has(kPastLength)) return;
  SetPresent(c, 1, kPast, *k);
  SetPresent(c, 2, kPast + 1, *v);
}

// Attention of com.microsoft: the input is [B, S, W], the weights are [W, 2 * N*D + N*Dv], and the
// past and the present are [2, B, N, P, D] and [2, B, N, P + S, D], unless they share a buffer.
void OpProjectedAttention(OpContext& c) {
  constexpr int kPast = 4;
  if (!c.Known(2) || c.in(0).rank() != 3 || c.in(1).rank() != 2) return;
  const Shape x = c.in(0).form.shape;
  Pool& pool = c.pool();
  const std::vector<int64_t> sizes = IntsAttribute(c.proto(), "qkv_hidden_sizes");
  const Expr hidden = sizes.size() == 3
                          ? pool.Integer(sizes[2])
                          : pool.FloorDiv(c.in(1).form.shape[1], pool.Integer(3), Facts{});
  c.SetOpaque(0, {x[0], x[1], hidden});
  if (!c.has(kPast) || !c.in(kPast).form.known_rank || c.in(kPast).rank() != 5) return;
  if (c.Int("past_present_share_buffer", 0) != 0) return;
  Shape present = c.in(kPast).form.shape;
  present[3] = pool.Add(present[3], x[1]);
  c.SetOpaque(1, std::move(present));
}

}  // namespace kvlift::sym::internal
