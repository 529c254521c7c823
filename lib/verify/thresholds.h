// Numbers at which one of two models may begin to do something else than the other.
#pragma once

#include <cstdint>
#include <vector>

#include "onnx/onnx_pb.h"

namespace kvlift {

// Whole numbers from 3 on that stand in a predicate, a bound, a length or a table's size of one of
// the models and not of the other, in ascending order.
std::vector<int64_t> UnmatchedNumbers(const onnx::ModelProto& before,
                                      const onnx::ModelProto& after);

}  // namespace kvlift
