// Reads and writes arrays in NumPy's .npy format. Source: NEP 1, format versions 1.0, 2.0 and 3.0.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "exec/memory/tensor.h"

namespace kvlift::cli {

// Parses a little-endian array of bools, integers or floats in C order. InvalidArgument says what
// is different.
absl::StatusOr<exec::Tensor> ParseNpy(std::string_view bytes);

// Returns a tensor as a .npy file. Types that NumPy does not have become unsigned integers of as
// many bytes. Unimplemented for types smaller than a byte and for values that are not tensors of
// numbers.
absl::StatusOr<std::string> NpyOf(const exec::View& tensor);

}  // namespace kvlift::cli
