// Numbers for dimensions that a model names (dim_param).
#pragma once

#include <cstdint>
#include <string>

#include "absl/types/span.h"
#include "onnx/onnx_pb.h"

namespace kvlift {

// A dimension that graph inputs name, and the number that it is in every run in question.
struct NamedSize {
  std::string name;  // the dim_param
  int64_t size = 0;

  friend bool operator==(const NamedSize&, const NamedSize&) = default;
};

// Replaces the names by the numbers where inputs of the graph declare them, also as summands: with
// S = 4 "P + S" becomes "P + 4".
void DeclareSizes(absl::Span<const NamedSize> sizes, onnx::GraphProto* graph);

}  // namespace kvlift
