// Quantises the caches of a converted model: int8 with one scale per group of G head elements, or
// float8e4m3fn with one scale per row. A row is quantised when it is written, from itself alone:
//
//   scale[g] = max(max |x[g, :]| / 127, 2^-126)      (448 instead of 127 for float8)
//   value    = QuantizeLinear(x, scale), blocks of G along D
//
// Values [.., D] and scales [.., D / G] are two caches, written at the same index, and readers get
// the rows through a DequantizeLinear. By the rules of KeyValueCache of the domains pmx and opmx,
// the least scale is 1e-5, and scales have the type of the rows instead of float32.
#pragma once

#include "absl/status/status.h"
#include "rewrite/emit/emission.h"
#include "rewrite/plan/conversion_plan.h"

namespace kvlift {

// Quantises every cache, each of which becomes two: values and scales. How much the results change
// is not checked.
absl::Status QuantizeCaches(const PlannedQuantization& planned, Emission* emission);

}  // namespace kvlift
