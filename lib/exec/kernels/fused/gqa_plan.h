// The plan of one step of com.microsoft GroupQueryAttention: extents, caches and RoPE, checked
// against the operator's text. Internal to lib/exec/kernels/fused.
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "exec/kernels/common/kernel.h"

namespace kvlift::exec {

// The inputs of the operator by their index.
enum GqaInput {
  kQuery,
  kKey,
  kValue,
  kPastKey,
  kPastValue,
  kSeqlens,
  kTotal,
  kCos,
  kSin,
  kPositions,
  kBias,
  kSink,
  kKeyScale,
  kValueScale,
  kQueryNorm,
  kKeyNorm
};

// P is the capacity of the past, M that of the present; R is the number of elements of a head that
// RoPE rotates, 0 without RoPE.
struct GqaPlan {
  int64_t B = 0, N = 0, Nk = 0, S = 0, P = 0, M = 0, D = 0, R = 0;
  int64_t total = 0;  // the longest sequence, with new tokens
  int32_t cache_type = 0;
  bool quantized = false;
  // Capacity and window, in tokens, of a cache that holds a sliding window of the sequence; 0: the
  // cache holds the whole sequence.
  int64_t capacity = 0, window = 0;
  bool packed = false;
  bool prompt = false;  // the cache has no token yet
};

// Returns true if the node has an output for the scores.
bool WantsScores(const KernelContext& context);
// Returns the elements of a stored row of the cache.
int64_t StoredSize(const GqaPlan& p);
// Reads the inputs and attributes of a step. Returns InvalidArgument where they do not fit.
absl::StatusOr<GqaPlan> PlanGqa(const KernelContext& context);

}  // namespace kvlift::exec
