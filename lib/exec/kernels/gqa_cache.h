// The cache of GroupQueryAttention where it is not simply the new rows behind the old ones in the
// type of the queries: rows of few bits with scales, and buffers that hold a window of the
// sequence. Letters: B batch, Nk key heads, S new tokens, C capacity of a buffer, D head size.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "exec/kernel.h"
#include "exec/tensor.h"

namespace kvlift::exec {

// How a row of D elements of one head is stored.
class CacheRows {
 public:
  // Elements of `type` as they are: float, float16, bfloat16.
  CacheRows(int32_t type, int64_t size);
  // float8e4m3fn, int8, or uint8 with two values of 4 bits a byte; `scale` has one element, or one
  // per head and element, and is multiplied on reading.
  CacheRows(int32_t type, int64_t size, const View& scale);

  int64_t bytes() const { return bytes_; }
  // Rounds to the nearest, ties to even, and saturates. Integers are rounded from the product with
  // the scale's reciprocal, as ONNX Runtime has them: it gives other ties than a quotient. That of
  // a scale of 0 is 1.
  void Store(int64_t head, const float* x, std::byte* row) const;
  void Load(int64_t head, const std::byte* row, float* x) const;

 private:
  float Scale(int64_t head, int64_t d) const;

  int32_t type_;
  int64_t size_, bytes_;
  const float* scale_ = nullptr;
  bool per_channel_ = false;
};

// Rows that a buffer of capacity C holds after `tokens` tokens with a window of W: the latest ones
// that are kept, from row 0 on.
int64_t ResidentRows(int64_t tokens, int64_t capacity, int64_t window);

// The rows of one step, old and new, in a buffer of their own. By batch entry: how many rows of the
// past come first, where the new ones go, and which rows become the present's first.
struct StagedEntry {
  int64_t copied = 0, first_new = 0, first_kept = 0, kept = 0;
};
struct StagedRows {
  int64_t Nk = 0, S = 0, D = 0;
  int64_t past_capacity = 0, capacity = 0;  // rows per head of past and present
  int64_t rows = 0;                         // and of the stage
  std::vector<StagedEntry> entries;
};

// Fills stage [B, Nk, rows, D] and, unless null, present [B, Nk, C, D], both of stored rows; what
// holds no token is 0. `fresh` is [B, Nk, S, D]. `wide` gets the stage as floats.
void StageRows(const StagedRows& staged, const CacheRows& rows, const std::byte* past,
               const float* fresh, std::byte* stage, std::byte* present, float* wide);

}  // namespace kvlift::exec
