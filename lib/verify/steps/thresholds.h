// Thresholds: numbers at which the behaviour of two models may begin to differ.
#pragma once

#include <cstdint>
#include <vector>

#include "onnx/onnx_pb.h"

namespace kvlift {

struct Unmatched {
  // The whole numbers from 3 on (by absolute value, below 2^31 - 1) that one model has and the
  // other has not: small constants that are operands of comparisons, arithmetic, Slice bounds or
  // lengths, and, for themselves, the numbers of rows of Gather tables.
  std::vector<int64_t> numbers;
  // For each type to which one model casts whole numbers more often than the other does, the
  // smallest whole number that the type does not hold, such as 2049 for float16.
  std::vector<int64_t> casts;
  // Other whole numbers from 3 on: those with which both models compare, since each may compare
  // something else, and those that occur more often in comparisons, Min, Max or Clip of one model.
  std::vector<int64_t> compared;
};

// Returns all in ascending order.
Unmatched FindUnmatched(const onnx::ModelProto& before, const onnx::ModelProto& after);

// Returns the sizes from 9 to 4208 of axes of stored tables that Gather and Slice read parts of,
// each once, at most 10 of them. A table of positions or a mask has a row for each position that
// the model takes.
std::vector<int64_t> RowsOfTables(const onnx::ModelProto& model);

}  // namespace kvlift
