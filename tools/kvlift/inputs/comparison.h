// Compares values with recorded ones.
#pragma once

#include <optional>
#include <string>

#include "exec/memory/tensor.h"

namespace kvlift::cli {

// The difference of a value from the expected one.
struct ValueComparison {
  bool equal = false;
  double max_abs = 0, max_rel = 0;
  std::string text;  // why not equal; empty if equal
};

// The tolerance of floats. A tolerance that is not given follows from the element type: a few of
// its steps for values of the order of 1, since other kernels round differently; or it is that of
// ONNX's backend test.
struct CompareOptions {
  std::optional<double> rtol, atol;
  bool as_onnx = false;
};

// Returns true if the folder is named as those of ONNX's test data, test_data_set_K.
bool IsOnnxTestData(const std::string& folder);

// Compares two tensors, sequences or optional values. Floats are equal if
// |a - e| <= atol + rtol |e|; NaN equals NaN, and infinities equal themselves. All other types are
// compared exactly.
ValueComparison Compare(const exec::View& actual, const exec::View& expected,
                        const CompareOptions& options);

// Returns the element type of a tensor by name, else "sequence" or "nothing" (an empty optional
// value).
std::string KindName(const exec::View& value);

}  // namespace kvlift::cli
