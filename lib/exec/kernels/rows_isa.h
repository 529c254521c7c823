// Arithmetic on rows, one table per instruction set. No other headers: what the files of an
// instruction set include is compiled for it.
#pragma once

#include <cstdint>

namespace kvlift::exec {

// y[i] = op(a[i * step_a], b[i * step_b]) for the four of arithmetic; steps are 0 or 1.
using RowBinary = void (*)(const float* a, int step_a, const float* b, int step_b, int64_t n,
                           float* y);
struct RowTable {
  RowBinary add, sub, mul, div;
  void (*neg)(const float* x, int64_t n, float* y);
};
const RowTable& GenericRows();
// Null where not compiled in; the caller checks the processor.
const RowTable* Avx2Rows();
const RowTable* Avx512Rows();

}  // namespace kvlift::exec
