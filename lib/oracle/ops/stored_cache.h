// Quantised caches of com.microsoft GroupQueryAttention: int8, float8e4m3fn, or uint8 with two
// 4-bit values per byte. Letters: B batch, S new tokens, T tokens in the cache. Internal to
// lib/oracle. Source: ONNX Runtime, GroupQueryAttention.
#pragma once

#include "absl/status/status.h"
#include "oracle/core/op.h"
#include "oracle/core/value.h"

namespace kvlift::oracle {

struct StoredCache {
  int32_t type = 0;  // of the stored tensor, uint8 for values of 4 bits; 0: it is not quantised
  // Key/value heads, and head size in elements.
  int64_t heads = 0, width = 0;
  Value scale;  // one element, or [heads * width]; absent if type is 0

  bool quantized() const { return type != 0; }
  bool in_four_bits() const { return type == onnx::TensorProto::UINT8; }
  // Returns the number of elements of a head's row in the stored tensor.
  int64_t stored_width() const { return in_four_bits() ? width / 2 : width; }
};

// Reads the attributes of keys (side 0) or values (side 1). Unimplemented for other types or
// widths; InvalidArgument for scales that do not fit.
absl::Status ReadStoredCache(const OpContext& c, int side, int64_t heads, int64_t width,
                             StoredCache* cache);

// Quantises rows [B, S, heads * width] to [B, S, heads * stored_width]. The result is doubtful if
// an error of a row could change a code.
Value StoredRows(const StoredCache& cache, const Value& rows);
// Dequantises stored rows [B, heads, T, stored_width] to float32 [B, heads, T, width].
Value ReadRows(const StoredCache& cache, const Value& kept);

}  // namespace kvlift::oracle
