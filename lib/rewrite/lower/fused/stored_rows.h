// Quantised caches of GroupQueryAttention in standard operators. With one constant scale for the
// whole cache, or one for each element of each head:
//
//   code = x * (1 / scale), rounded to the nearest, ties to even, saturated
//   x'   = code * scale
//
// 8 bits: int8 or float8e4m3fn. 4 bits: uint8, two codes from -8 to 7 in a byte, stored with 8
// added; the low half of the byte is the even element.
// Source: GroupQueryAttention of com.microsoft, ONNX Runtime 1.31.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "rewrite/lower/fused/fused_lowering.h"

namespace kvlift::fused {

// How a node stores its keys or its values.
struct StoredForm {
  // The type of the cache: int8, float8e4m3fn, or uint8 for two codes in a byte; UNDEFINED: rows
  // are not quantised.
  int32_t type = onnx::TensorProto::UNDEFINED;
  int64_t heads = 0, size = 0;  // Nk and D
  std::vector<float> scale;     // one number, or heads * size; empty if rows are not quantised

  bool quantized() const { return type != onnx::TensorProto::UNDEFINED; }
  bool two_in_a_byte() const { return type == onnx::TensorProto::UINT8; }
  // Returns the number of elements of a head's row in the cache.
  int64_t stored_size() const { return two_in_a_byte() ? size / 2 : size; }
};

// Reads from the node's attributes and inputs how it stores keys and values. Returns why that form
// is not supported; empty if it is.
std::string ReadStoredRows(Lowering& l, NodeId n, int64_t heads, int64_t size, StoredForm* key,
                           StoredForm* value);

// Stored returns the codes of rows [B, heads, S, size], float32, as the cache holds them; Restored
// returns the rows from the codes.
std::string Stored(Lowering& l, const StoredForm& stored, const std::string& rows,
                   std::string_view role);
std::string Restored(Lowering& l, const StoredForm& stored, const std::string& cache,
                     std::string_view role);

}  // namespace kvlift::fused
