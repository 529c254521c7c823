// Reads the values of small constant TensorProtos (shapes, axes, scalars), whichever field they
// use. External data is not read here: such tensors return FailedPrecondition.
#pragma once

#include <cstdint>
#include <string>
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

// The elements as little-endian bytes, sub-byte types packed from the low bits on, whichever field
// holds them. FailedPrecondition for external data; InvalidArgument for strings, for more than one
// value field, or for a byte count other than the type and the dims ask for.
absl::StatusOr<std::string> InlineBytes(const onnx::TensorProto& tensor);
// Bytes of num_elements elements, rounded up. InvalidArgument for strings or above 2^62.
absl::StatusOr<int64_t> ByteSize(int32_t elem_type, int64_t num_elements);

onnx::TensorProto MakeInt64Tensor(std::string name, const std::vector<int64_t>& dims,
                                  const std::vector<int64_t>& values);

}  // namespace kvlift
