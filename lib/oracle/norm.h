// Normalization of one row with its errors.
#pragma once

#include <vector>

#include "oracle/op.h"

namespace kvlift::oracle {

struct RowNorm {
  Number mean, scale;
};

// (x - mean) / sqrt(variance + epsilon), or x / sqrt(mean square + epsilon) where not centred, in
// place.
RowNorm NormalizeRow(std::vector<Number>& row, double epsilon, bool centred, int32_t type);

}  // namespace kvlift::oracle
