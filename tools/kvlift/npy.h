// Reading arrays in NumPy's .npy format.
// Source: NEP 1, format versions 1.0, 2.0 and 3.0.
#pragma once

#include <string_view>

#include "absl/status/statusor.h"
#include "exec/tensor.h"

namespace kvlift::cli {

// Little-endian bool, integer and float arrays in C order. InvalidArgument says what else it is.
absl::StatusOr<exec::Tensor> ParseNpy(std::string_view bytes);

}  // namespace kvlift::cli
