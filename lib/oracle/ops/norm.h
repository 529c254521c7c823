// Normalisation of one row, with its errors.
#pragma once

#include <vector>

#include "oracle/core/op.h"

namespace kvlift::oracle {

// The mean of the row (0 where not centred) and the factor 1 / sqrt(variance + epsilon).
struct RowNorm {
  Number mean, scale;
};

// Normalises `row` in place: (x - mean) / sqrt(variance + epsilon), or x / sqrt(mean square +
// epsilon) if not `centred`. `type` is the element type of the operator.
RowNorm NormalizeRow(std::vector<Number>& row, double epsilon, bool centred, int32_t type);

}  // namespace kvlift::oracle
