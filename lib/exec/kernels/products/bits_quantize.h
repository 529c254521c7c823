// Quantises rows of floats to int8 codes, for the products of BitsDot().
#pragma once

#include <cstdint>

namespace kvlift::exec {

// Quantises one block of a row: codes[i] = x[i] / scale, rounded to nearest, i < n, with the
// smallest scale that keeps all codes within 127. n is a multiple of 16. `sum` is set to the sum of
// the codes.
using QuantizeFn = void (*)(const float* x, int64_t n, int8_t* codes, float* scale, float* sum);

// Returns null where VnniBitsDot() does.
QuantizeFn VnniQuantize();

}  // namespace kvlift::exec
