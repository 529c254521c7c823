// Rows of floats as 8-bit codes, for the products of BitsDot().
#pragma once

#include <cstdint>

namespace kvlift::exec {

// One block of a row: codes[n] = x / scale to the nearest, for the least scale that keeps them
// within 127; n is a multiple of 16. `sum` becomes that of the codes.
using QuantizeFn = void (*)(const float* x, int64_t n, int8_t* codes, float* scale, float* sum);

// There wherever VnniBitsDot() is.
QuantizeFn VnniQuantize();

}  // namespace kvlift::exec
