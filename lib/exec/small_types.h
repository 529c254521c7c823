// Elements of quantized tensors one by one: integers of 2 to 32 bits, floats of 4 and 8 bits. Types
// of less than a byte are packed, first element in the lowest bits.
#pragma once

#include <cstdint>

#include "exec/tensor.h"

namespace kvlift::exec {

struct IntegerRange {
  int64_t low = 0, high = 0;
};

// int2, uint2, int4, uint4, (u)int8, (u)int16, int32, uint32.
bool IsSmallInteger(int32_t type);
IntegerRange RangeOf(int32_t type);
int64_t SmallIntegerAt(const View& view, int64_t i);
// The low bits of value.
void SetSmallInteger(const View& view, int64_t i, int64_t value);

// float8e4m3fn, float8e4m3fnuz, float8e5m2, float8e5m2fnuz, float8e8m0, float4e2m1.
bool IsSmallFloat(int32_t type);
float SmallFloatAt(const View& view, int64_t i);
// Rounds to nearest, ties to even. What is too large becomes the largest value if `saturate`, else
// infinity or, without one, NaN; float4e2m1 always saturates.
void SetSmallFloat(const View& view, int64_t i, float value, bool saturate);

}  // namespace kvlift::exec
