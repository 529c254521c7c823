// Attention-23, -24 and -25: what the inputs and attributes of one call mean.
// Letters: B batch, N query heads, Nk key heads, G = N / Nk, S new tokens, P past tokens,
// T = P + new keys, D head size of queries and keys, Dv of values.
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "exec/kernel.h"

namespace kvlift::exec {

// Where element (b, h, s, 0) of a tensor of rank 3 or 4 lies, in elements; the head is contiguous.
struct HeadLayout {
  int64_t batch = 0, head = 0, token = 0;
  int64_t Offset(int64_t b, int64_t h, int64_t s) const { return b * batch + h * head + s * token; }
};

struct AttentionPlan {
  int64_t B = 0, N = 0, Nk = 0, G = 1, S = 0, P = 0, T = 0, D = 0, Dv = 0;
  int64_t new_keys = 0;  // tokens in K and V; T = P + new_keys
  bool rank3 = false;
  HeadLayout q, k, v, y;  // of the inputs (k, v without the past) and of Y

  double scale = 1;
  double softcap = 0;  // 0: none
  bool causal = false;
  int64_t left_window = -1, right_window = -1;  // -1: unbounded
  int32_t softmax_type = 0;                     // 0: the compute type
  int64_t qk_mode = 0;

  bool has_mask = false;
  int64_t mask_keys = 0;  // keys covered by the mask; those behind are masked
  int64_t mask_b = 0, mask_h = 0, mask_s = 0, mask_t = 1;  // strides, 0 where broadcast
};

// Keys [begin, end) that a query may see, apart from attn_mask.
struct KeyRange {
  int64_t begin = 0, end = 0;
};
// valid: nonpad_kv_seqlen of the batch entry, or T. has_valid: it was given.
KeyRange VisibleKeys(const AttentionPlan& plan, int64_t s, int64_t valid, bool has_valid);

absl::StatusOr<AttentionPlan> PlanAttention(const KernelContext& context);
// The same where keys and values may be of another type than queries.
absl::StatusOr<AttentionPlan> PlanAttentionOfAnyType(const KernelContext& context);
// InvalidArgument for a nonpad_kv_seqlen, if given, that is outside [0, T].
absl::Status CheckValidLengths(const KernelContext& context, const AttentionPlan& plan);
absl::Status AttentionShape(KernelContext& context);

}  // namespace kvlift::exec
