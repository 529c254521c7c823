// Reads the values of small constant TensorProtos (shapes, axes, scalars), whichever field they
// use. External data is not read here: such tensors return FailedPrecondition.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "onnx/onnx_pb.h"

namespace kvlift {

// Product of dims with overflow check. InvalidArgument if negative or above 2^62.
absl::StatusOr<int64_t> NumElements(const onnx::TensorProto& tensor);
// Any integer type or bool, widened. InvalidArgument for other types or a wrong byte count.
absl::StatusOr<std::vector<int64_t>> ReadInts(const onnx::TensorProto& tensor);
// Any float type (float16, bfloat16, float32, float64), widened to double.
absl::StatusOr<std::vector<double>> ReadFloats(const onnx::TensorProto& tensor);

onnx::TensorProto MakeInt64Tensor(std::string name, const std::vector<int64_t>& dims,
                                  const std::vector<int64_t>& values);

}  // namespace kvlift
