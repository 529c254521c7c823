// The plan of one call of Attention-23, -24 or -25: sizes, strides, masks and limits, read from its
// inputs and attributes. Letters: B batch, N query heads, Nk key/value heads, G = N / Nk, S new
// tokens, P past tokens, T = P + tokens in K and V, D head size of queries and keys, Dv of values.
// Source: ONNX Attention-23, -24 and -25.
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "exec/kernels/common/kernel.h"

namespace kvlift::exec {

// Strides of a tensor of rank 3 or 4, in elements: element (b, h, s, 0) is at Offset(b, h, s), and
// the elements of a head are contiguous.
struct HeadLayout {
  int64_t batch = 0, head = 0, token = 0;
  int64_t Offset(int64_t b, int64_t h, int64_t s) const { return b * batch + h * head + s * token; }
};

struct AttentionPlan {
  int64_t B = 0, N = 0, Nk = 0, G = 1, S = 0, P = 0, T = 0, D = 0, Dv = 0;
  int64_t new_keys = 0;  // tokens in K and V; T = P + new_keys
  // Inputs of rank 3: [B, S, N * D] instead of [B, N, S, D].
  bool rank3 = false;
  HeadLayout q, k, v, y;  // of Q, of K and V (without the past), and of Y

  double scale = 1;
  double softcap = 0;  // 0: no soft cap
  bool causal = false;
  // Tokens before and after the query's own that it may see; -1: unbounded.
  int64_t left_window = -1, right_window = -1;
  int32_t softmax_type = 0;  // element type of the softmax; 0: the compute type
  // Attribute qk_matmul_output_mode.
  int64_t qk_mode = 0;

  bool has_mask = false;
  int64_t mask_keys = 0;  // keys that the mask covers; keys behind them are masked
  int64_t mask_b = 0, mask_h = 0, mask_s = 0, mask_t = 1;  // strides, 0 where broadcast
};

// The keys [begin, end) that a query may see, apart from attn_mask.
struct KeyRange {
  int64_t begin = 0, end = 0;
};
// Returns the visible keys of query s, {0, 0} if there are none. `valid` is nonpad_kv_seqlen of the
// batch entry, or T; `has_valid`: the input nonpad_kv_seqlen is given.
KeyRange VisibleKeys(const AttentionPlan& plan, int64_t s, int64_t valid, bool has_valid);

// Returns InvalidArgument if the inputs or attributes do not fit the operator. Does not read
// elements.
absl::StatusOr<AttentionPlan> PlanAttention(const KernelContext& context);
// Does the same for keys and values of another type than queries.
absl::StatusOr<AttentionPlan> PlanAttentionOfAnyType(const KernelContext& context);
// Returns InvalidArgument if nonpad_kv_seqlen is given and has a length outside of [0, T].
absl::Status CheckValidLengths(const KernelContext& context, const AttentionPlan& plan);
// Finds the types and shapes of Attention's outputs: Y, present_key, present_value,
// qk_matmul_output.
absl::Status AttentionShape(KernelContext& context);

}  // namespace kvlift::exec
