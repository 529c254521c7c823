// Quantised caches of GroupQueryAttention. With a scale s for the whole cache, or for each element
// of each key/value head, a row x is stored as round(x * (1 / s)), ties to even and clipped: in
// int8, in float8e4m3fn, or in 4 bits as a value from -8 to 7 plus 8, two to a uint8 with the first
// in the low half.
// It is read as the stored value times s. Internal to lib/proof. Source: com.microsoft
// GroupQueryAttention.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "proof/lower/contrib_writer.h"

namespace kvlift::plain {

// How one cache stores its rows.
struct StoredForm {
  // The type of the stored values; uint8 for values of 4 bits. UNDEFINED if rows are not quantised.
  int32_t type = onnx::TensorProto::UNDEFINED;
  // `groups` is Nk and `width` is D.
  int64_t groups = 0, width = 0;
  // One scale, or Nk * D of them; empty if rows are not quantised.
  std::vector<float> scale;

  bool quantized() const { return type != onnx::TensorProto::UNDEFINED; }
  bool in_four_bits() const { return type == onnx::TensorProto::UINT8; }
};

// Reads how a cache stores its rows. `side` is 0 for keys and 1 for values. The past is input
// 3 + side and has the element type `type`. `scale` is the constant at input 12 + side; it is null
// if the node has no constant scale. Returns false if the cache is quantised in another way.
bool ReadStoredForm(const onnx::NodeProto& node, int side, int32_t type, int64_t groups,
                    int64_t width, const onnx::TensorProto* scale, StoredForm* rows);

// Add nodes that quantise rows [B, Nk, S, D] as the cache stores them (RowsForCache), and that
// dequantise the cache (RowsFromCache). Return the name of the result.
std::string RowsForCache(const StoredForm& rows, const std::string& x, Writer& w);
std::string RowsFromCache(const StoredForm& rows, const std::string& cache, Writer& w);

}  // namespace kvlift::plain
