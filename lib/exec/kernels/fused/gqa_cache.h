// The cache of GroupQueryAttention where new rows are not simply appended in the type of the
// queries: quantised caches, and buffers that hold a sliding window of the sequence. Letters: B
// batch, Nk key/value heads, S new tokens, C capacity of a buffer, D head size. Source: ONNX
// Runtime, GroupQueryAttention.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "exec/kernels/common/kernel.h"
#include "exec/memory/tensor.h"

namespace kvlift::exec {

// How a row of D elements of one head is stored. The constructors do not check types or sizes.
class CacheRows {
 public:
  // Stores elements of `type` as they are: float, float16 or bfloat16.
  CacheRows(int32_t type, int64_t size);
  // Stores quantised rows: float8e4m3fn, int8, or uint8 with two 4-bit values per byte. `scale` is
  // float, with one element or one per head and element [Nk * D]; stored values are multiplied by
  // it when read.
  CacheRows(int32_t type, int64_t size, const View& scale);

  // Returns the bytes of a row.
  int64_t bytes() const { return bytes_; }
  // Rounds to nearest, ties to even, and saturates. Integers are rounded from the product with the
  // scale's reciprocal (1 for a scale of 0), as in ONNX Runtime: a quotient would round some ties
  // differently.
  void Store(int64_t head, const float* x, std::byte* row) const;
  void Load(int64_t head, const std::byte* row, float* x) const;

 private:
  float Scale(int64_t head, int64_t d) const;

  int32_t type_;
  int64_t size_, bytes_;
  const float* scale_ = nullptr;
  bool per_channel_ = false;
};

// Returns how many rows a buffer of capacity C holds after `tokens` tokens with a sliding window of
// W tokens: the latest ones, stored from row 0 on.
int64_t ResidentRows(int64_t tokens, int64_t capacity, int64_t window);

// The rows of one batch entry in a step. The stage is a buffer that gets old and new rows: the
// first `copied` rows of the past, then the new ones from `first_new` on. The present gets `kept`
// rows of the stage from `first_kept` on.
struct StagedEntry {
  int64_t copied = 0, first_new = 0, first_kept = 0, kept = 0;
};
struct StagedRows {
  int64_t Nk = 0, S = 0, D = 0;
  int64_t past_capacity = 0, capacity = 0;  // rows per head of past and present
  int64_t rows = 0;                         // rows per head of the stage
  std::vector<StagedEntry> entries;
};

// Fills stage [B, Nk, rows, D] and, if not null, present [B, Nk, C, D] with stored rows; rows
// without token are 0. `fresh` is [B, Nk, S, D]. `wide` gets the stage as floats.
void StageRows(const StagedRows& staged, const CacheRows& rows, const std::byte* past,
               const float* fresh, std::byte* stage, std::byte* present, float* wide);

}  // namespace kvlift::exec
