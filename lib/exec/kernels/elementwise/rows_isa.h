// Arithmetic on rows, one table per instruction set. Includes no other header of the project, since
// the files of an instruction set compile all that they include for it.
#pragma once

#include <cstdint>

namespace kvlift::exec {

// Sets y[i] to op(a[i * step_a], b[i * step_b]), i < n, for one of the four operations; steps are 0
// or 1.
using RowBinary = void (*)(const float* a, int step_a, const float* b, int step_b, int64_t n,
                           float* y);
struct RowTable {
  RowBinary add, sub, mul, div;
  void (*neg)(const float* x, int64_t n, float* y);
};
const RowTable& GenericRows();
// These return null if the table is not compiled in. The caller checks that the processor has the
// instructions.
const RowTable* Avx2Rows();
const RowTable* Avx512Rows();

}  // namespace kvlift::exec
