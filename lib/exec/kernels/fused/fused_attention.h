// Attention as in the com.microsoft operators: one head at a time, additive masks, an optional sink
// in the denominator of the softmax. Sums are in the order of MatMul and Softmax. Letters: B batch,
// N query heads, Nk key/value heads, S queries, M capacity of the key buffer, D head size of
// queries and keys, Dv of values. Source: ONNX Runtime, GroupQueryAttention, MultiHeadAttention,
// Attention.
#pragma once

#include <cstdint>

#include "exec/kernels/attention/attention.h"
#include "exec/kernels/common/math_util.h"

namespace kvlift::exec {

template <typename C>
struct FusedHeads {
  int64_t B = 0, N = 0, Nk = 0, S = 0, M = 0, D = 0, Dv = 0;
  const C* q = nullptr;           // [B, N, S, D]
  const C* k = nullptr;           // [B, Nk, M, D]
  const C* v = nullptr;           // [B, Nk, M, Dv]
  C* y = nullptr;                 // [B, S, N, Dv]
  const int64_t* keys = nullptr;  // by batch entry: slots [0, keys) hold keys
  const int64_t* past = nullptr;  // by batch entry: the slot of query 0
  double scale = 1, softcap = 0;
  bool causal = false;
  bool last_sees_all = false;  // with `causal`, no key is hidden from the last query
  // Sliding window: a query sees at most this many keys, its own included; -1: no window.
  int64_t window = -1;
  // Added after the soft cap: [B or 1, N or 1, S, bias_keys]; null: no bias.
  const C* bias = nullptr;
  // Strides of the first two dimensions, 0 where broadcast.
  int64_t bias_b = 0, bias_h = 0, bias_keys = 0;
  const C* mask = nullptr;  // also added: [B, S or 1, M]; null: no mask
  int64_t mask_b = 0, mask_s = 0;
  // The position of slot 0 in `bias` and `scores`, by batch entry; null: 0.
  const int64_t* first = nullptr;
  // The score of the sink, by query head: exp(sink) is added to the sum of the softmax. Null: no
  // sink.
  const C* sink = nullptr;
  // If not null, gets the scores [B, N, S, scores_keys]: the input of the softmax or, if
  // `probabilities`, its output; 0 where a query sees no key.
  C* scores = nullptr;
  int64_t scores_keys = 0;
  bool probabilities = false;
};

// Fills `y` in canonical order.
template <typename C>
void RunFusedHeads(const FusedHeads<C>& heads, int threads);

// Returns the slots [begin, end) that query s of batch entry b may see, apart from bias and mask;
// {0, 0} if there are none.
template <typename C>
KeyRange VisibleSlots(const FusedHeads<C>& heads, int64_t b, int64_t s) {
  KeyRange range = {0, heads.keys[b]};
  const int64_t position = heads.past[b] + s;
  const bool hides = heads.causal && !(heads.last_sees_all && s == heads.S - 1);
  if (hides) range.end = std::min(range.end, position + 1);
  if (heads.window >= 0) range.begin = std::max<int64_t>(0, position + 1 - heads.window);
  if (range.begin >= range.end) range = {0, 0};
  return range;
}

// Does the same in the fast order: keys [B, Nk, M, D], values [B, Nk, M, Dv] and the result [B, S,
// N, Dv] have the element types they are stored in; k, v and y of `heads` are not used.
struct StoredOperand {
  const void* data = nullptr;
  Storage storage = Storage::kNative;
};
struct StoredResult {
  void* data = nullptr;
  Storage storage = Storage::kNative;
};
void RunFusedGrouped(const FusedHeads<float>& heads, const StoredOperand& k, const StoredOperand& v,
                     const StoredResult& y, int threads);

extern template void RunFusedHeads<float>(const FusedHeads<float>&, int);
extern template void RunFusedHeads<double>(const FusedHeads<double>&, int);

// Copies x[b, s, h, d], at b * batch + s * token + h * head + d, to y[b, h, s, d] in the compute
// type. If `bias` [heads * size] is not null it is added, and the sum is rounded to T.
struct HeadSource {
  int64_t batch = 0, token = 0, head = 0;
};
template <typename T>
void LoadHeads(const T* x, const HeadSource& from, const T* bias, int64_t B, int64_t heads,
               int64_t S, int64_t size, math::Compute<T>* y) {
  for (int64_t b = 0; b < B; ++b) {
    for (int64_t h = 0; h < heads; ++h) {
      for (int64_t s = 0; s < S; ++s) {
        const T* row = x + b * from.batch + s * from.token + h * from.head;
        math::WidenArray(row, size, y);
        for (int64_t d = 0; bias != nullptr && d < size; ++d) {
          y[d] = math::Widen(math::Narrow<T>(y[d] + math::Widen(bias[h * size + d])));
        }
        y += size;
      }
    }
  }
}

// Reads an attention bias [B or 1, N or 1, S, at least `keys`] of the type of input 0 into `heads`.
// Does nothing if the input is omitted; InvalidArgument if it does not fit.
template <typename T>
absl::Status ReadAttentionBias(const KernelContext& context, size_t input, int64_t keys,
                               ScratchScope& scratch, FusedHeads<math::Compute<T>>* heads) {
  if (!math::HasInput(context, input)) return absl::OkStatus();
  const View& view = context.inputs[input];
  const Shape& shape = view.shape;
  if (view.type != context.inputs[0].type || shape.size() != 4 ||
      (shape[0] != heads->B && shape[0] != 1) || (shape[1] != heads->N && shape[1] != 1) ||
      shape[2] != heads->S || shape[3] < keys) {
    return math::Invalid(context, "attention_bias does not fit");
  }
  auto* wide = scratch.Get<math::Compute<T>>(view.size());
  math::WidenArray(view.as<T>(), view.size(), wide);
  heads->bias = wide;
  heads->bias_keys = shape[3];
  heads->bias_h = shape[1] == 1 ? 0 : shape[2] * shape[3];
  heads->bias_b = shape[0] == 1 ? 0 : shape[1] * shape[2] * shape[3];
  return absl::OkStatus();
}

}  // namespace kvlift::exec
