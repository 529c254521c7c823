// Caches of com.microsoft GroupQueryAttention in few bits: int8, or uint8 with two values of 4 bits
// in a byte. Internal to lib/oracle.
#pragma once

#include "absl/status/status.h"
#include "oracle/op.h"
#include "oracle/value.h"

namespace kvlift::oracle {

struct StoredCache {
  int64_t bits = 0;  // 0: rows are kept as they are
  int64_t heads = 0, width = 0;
  Value scale;  // one, or one per head and element

  int64_t stored_width() const { return bits == 4 ? width / 2 : width; }
};

// What the operator says of its keys (side 0) or values (1).
absl::Status ReadStoredCache(const OpContext& c, int side, int64_t heads, int64_t width,
                             StoredCache* cache);

// Rows [B, S, heads * width] as they are kept, [B, S, heads * stored_width]. Doubtful if an error
// may turn a code.
Value StoredRows(const StoredCache& cache, const Value& rows);
// Kept rows [B, heads, T, stored_width] as they are read, in float32.
Value ReadRows(const StoredCache& cache, const Value& kept);

}  // namespace kvlift::oracle
