// Products of matrices with their errors.
#pragma once

#include <vector>

#include "absl/status/status.h"
#include "oracle/op.h"

namespace kvlift::oracle {

// y = factor * a b for matrices of rank 2 or more whose leading dims broadcast; not rounded to the
// type unless `rounded`.
absl::Status MatrixProduct(OpContext& c, const Value& a, const Value& b, double factor, Value* y);
// The last two dims exchanged.
Value Turned(const Value& x);

}  // namespace kvlift::oracle
