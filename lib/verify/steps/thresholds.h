// Thresholds: numbers that occur in one of two models only, at which their behaviour may begin to
// differ.
#pragma once

#include <cstdint>
#include <vector>

#include "onnx/onnx_pb.h"

namespace kvlift {

// Returns the whole numbers from 3 on (by absolute value, below 2^31 - 1) that one model has and
// the other has not, in ascending order. Only small constants count that are operands of
// comparisons, arithmetic, Slice bounds or lengths, and the numbers of rows of Gather tables.
std::vector<int64_t> UnmatchedNumbers(const onnx::ModelProto& before,
                                      const onnx::ModelProto& after);

// Returns, for each type to which one model casts whole numbers more often than the other does, the
// smallest whole number that the type does not hold, such as 2049 for float16. The numbers are in
// ascending order.
std::vector<int64_t> UnmatchedCasts(const onnx::ModelProto& before, const onnx::ModelProto& after);

}  // namespace kvlift
