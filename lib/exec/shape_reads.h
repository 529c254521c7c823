// What an operator's output shapes depend on besides the types and shapes of its inputs.
#pragma once

#include <cstddef>
#include <cstdint>

#include "exec/kernel.h"

namespace kvlift::exec {

// Bit i: the shape function reads the elements of input i.
inline constexpr uint32_t kReadsAll = ~uint32_t{0};

// kReadsAll for operators that are not known here.
uint32_t ShapeReads(const OpDef& def);
inline bool ReadsInput(uint32_t reads, size_t input) {
  return reads == kReadsAll || (input < 31 && (reads >> input & 1) != 0);
}

// Cheap operators on indices, extents and masks, whose results may be computed before the step
// proper if shapes depend on them.
bool IsIndexArithmetic(const OpDef& def);
// Shape and Size: results depend on the shape of the input alone.
bool IsOfShapeAlone(const OpDef& def);

}  // namespace kvlift::exec
