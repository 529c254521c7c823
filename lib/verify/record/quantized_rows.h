// Rows as a quantised cache stores them, by the definition of
// verify/variants/quantized.h.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "contract/manifest.h"
#include "exec/memory/tensor.h"

namespace kvlift {

// How the rows of a cache are stored.
struct RowStorage {
  int64_t group = 1;  // elements of the last axis that share a scale
  int32_t type = 0;   // int8 or float8e4m3fn
};

// Returns how the quantised caches of a relation are stored, by their input.
std::map<std::string, RowStorage> StorageOf(const Manifest& relation);

struct QuantizedRows {
  exec::Tensor values, scales;  // [.., D] in the stored type, and [.., D / group] in float32
};

// Quantises rows [.., D] of floats.
QuantizedRows QuantizeRows(const exec::View& rows, const RowStorage& storage);

// Returns, for each element of rows [.., D], how far the dequantised element may be from it, in
// doubles.
exec::Tensor StorageErrors(const exec::View& rows, const RowStorage& storage);

}  // namespace kvlift
