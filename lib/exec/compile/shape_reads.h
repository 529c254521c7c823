// The inputs whose elements decide an operator's output shapes. (The types and shapes of all inputs
// decide them too.)
#pragma once

#include <cstddef>
#include <cstdint>

#include "exec/kernels/common/kernel.h"

namespace kvlift::exec {

// Bit i of a mask: the shape function reads the elements of input i. kReadsAll: it may read any.
inline constexpr uint32_t kReadsAll = ~uint32_t{0};

// Returns the mask of an operator, and kReadsAll for an operator that is not listed here.
uint32_t ShapeReads(const OpDef& def);
inline bool ReadsInput(uint32_t reads, size_t input) {
  return reads == kReadsAll || (input < 31 && (reads >> input & 1) != 0);
}

// Returns true for cheap operators that compute indices, extents and masks. Their results may be
// computed before the other nodes of a step if shapes depend on them.
bool IsIndexArithmetic(const OpDef& def);
// Returns true for Shape and Size, which read only the shape of their input.
bool IsOfShapeAlone(const OpDef& def);

}  // namespace kvlift::exec
