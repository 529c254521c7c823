// Attention as the com.microsoft operators have it: every head on its own, additive masks, an
// optional sink in the denominator of the softmax. Sums are in the order of MatMul and Softmax.
// Letters: B batch, N query heads, Nk key heads, S queries, M slots of the key buffer, D head size
// of queries and keys, Dv of values.
#pragma once

#include <cstdint>

#include "exec/kernels/attention.h"
#include "exec/kernels/math_util.h"

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
  int64_t window = -1;      // a query sees this many keys at most, itself included; -1: all
  const C* bias = nullptr;  // added after the soft cap: [B or 1, N or 1, S, bias_keys]
  int64_t bias_b = 0, bias_h = 0, bias_keys = 0;  // strides of the first dims, 0 where broadcast
  const C* mask = nullptr;                        // added too: [B, S or 1, M]
  int64_t mask_b = 0, mask_s = 0;
  const int64_t* first = nullptr;  // by batch entry: what slot 0 is in bias and scores; null: 0
  const C* sink = nullptr;         // by query head: exp(sink) is added to the sum of the softmax
  // Not null: [B, N, S, scores_keys], gets the scores as they go into the softmax or, if
  // `probabilities`, come out of it; 0 where a query sees nothing.
  C* scores = nullptr;
  int64_t scores_keys = 0;
  bool probabilities = false;
};

template <typename C>
void RunFusedHeads(const FusedHeads<C>& heads, int threads);

// Slots [begin, end) that query s of entry b may see, apart from bias and mask; {0, 0} if none.
template <typename C>
KeyRange VisibleSlots(const FusedHeads<C>& heads, int64_t b, int64_t s) {
  KeyRange range = {0, heads.keys[b]};
  const int64_t position = heads.past[b] + s;
  if (heads.causal) range.end = std::min(range.end, position + 1);
  if (heads.window >= 0) range.begin = std::max<int64_t>(0, position + 1 - heads.window);
  if (range.begin >= range.end) range = {0, 0};
  return range;
}

// The same in order fast: keys [B, Nk, M, D], values [B, Nk, M, Dv] and the result [B, S, N, Dv]
// in the elements they are stored in; k, v and y of `heads` are not used.
struct StoredRows {
  const void* data = nullptr;
  Storage storage = Storage::kNative;
};
struct StoredResult {
  void* data = nullptr;
  Storage storage = Storage::kNative;
};
void RunFusedGrouped(const FusedHeads<float>& heads, const StoredRows& k, const StoredRows& v,
                     const StoredResult& y, int threads);

extern template void RunFusedHeads<float>(const FusedHeads<float>&, int);
extern template void RunFusedHeads<double>(const FusedHeads<double>&, int);

// x[b, s, h, d] at b * batch + s * token + h * head + d becomes y[b, h, s, d]; `bias` [heads *
// size] is added and the sum rounded to T, if given.
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

// An attention bias [B or 1, N or 1, S, keys] of the heads' own type, widened. InvalidArgument if
// it does not fit.
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
