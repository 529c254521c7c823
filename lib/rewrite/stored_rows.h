// How GroupQueryAttention keeps the rows of a cache in few bits, in standard operators. With a
// constant scale for all of it, or one for each element of each head:
//
//   code = x * (1 / scale), rounded to the nearest, ties to even, saturated
//   x'   = code * scale
//
// in int8, or in uint8: two codes from -8 to 7 in a byte, each 8 more than the number it stands
// for, that of the even element in the low half.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "rewrite/fused_lowering.h"

namespace kvlift::fused {

struct StoredRows {
  int bits = 0;  // 0: rows are kept as they are
  int64_t heads = 0, size = 0;
  std::vector<float> scale;  // one, or heads * size

  bool quantized() const { return bits != 0; }
  // Elements of a row in the cache.
  int64_t stored_size() const { return bits == 4 ? size / 2 : size; }
};

// What the node's attributes and inputs say of its keys and its values. Returns why it is not
// taken, or nothing.
std::string ReadStoredRows(Lowering& l, NodeId n, int64_t heads, int64_t size, StoredRows* key,
                           StoredRows* value);

// [B, heads, S, size] as the cache holds it, and back, in float32.
std::string Stored(Lowering& l, const StoredRows& stored, const std::string& rows,
                   std::string_view role);
std::string Restored(Lowering& l, const StoredRows& stored, const std::string& cache,
                     std::string_view role);

}  // namespace kvlift::fused
