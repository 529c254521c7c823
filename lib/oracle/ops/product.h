// Products of matrices, with their errors.
#pragma once

#include <vector>

#include "absl/status/status.h"
#include "oracle/core/op.h"

namespace kvlift::oracle {

// Sets y to factor * a * b for matrices of rank 2 or more whose leading dimensions broadcast. The
// result is not rounded to the element type. InvalidArgument if the shapes do not fit;
// ResourceExhausted as OpContext::Spend.
absl::Status MatrixProduct(OpContext& c, const Value& a, const Value& b, double factor, Value* y);
// Returns x with the last two dimensions exchanged.
Value Transposed(const Value& x);

}  // namespace kvlift::oracle
