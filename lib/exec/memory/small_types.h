// Access to single elements of quantised tensors: integers of 2 to 32 bits, floats of 4 and 8 bits.
// Types smaller than a byte are packed, the first element in the lowest bits. No function checks
// the type or the index.
#pragma once

#include <cstdint>

#include "exec/memory/tensor.h"

namespace kvlift::exec {

struct IntegerRange {
  int64_t low = 0, high = 0;
};

// Returns true for int2, uint2, int4, uint4, int8, uint8, int16, uint16, int32 and uint32.
bool IsSmallInteger(int32_t type);
IntegerRange RangeOf(int32_t type);
int64_t SmallIntegerAt(const View& view, int64_t i);
// Stores the low bits of `value`.
void SetSmallInteger(const View& view, int64_t i, int64_t value);

// Returns true for float8e4m3fn, float8e4m3fnuz, float8e5m2, float8e5m2fnuz, float8e8m0 and
// float4e2m1.
bool IsSmallFloat(int32_t type);
float SmallFloatAt(const View& view, int64_t i);
// Stores `value` rounded to nearest, ties to even; float8e8m0 rounds up to a power of two. A value
// that is too large becomes the largest finite value if `saturate`, else infinity or, in types
// without infinity, NaN. float4e2m1 and float8e8m0 always saturate.
void SetSmallFloat(const View& view, int64_t i, float value, bool saturate);

}  // namespace kvlift::exec
