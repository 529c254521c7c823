// Reads the elements of small constant tensors (shapes, axes, scalars), whichever field holds them.
// A tensor whose external data is not mapped (IsElsewhere in ir/spans.h) gives FailedPrecondition.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "onnx/onnx_pb.h"

namespace kvlift {

// Returns the product of the dims: 1 for a scalar, 0 if a dim is 0. Returns InvalidArgument if a
// dim is negative or the product is above 2^62.
absl::StatusOr<int64_t> NumElements(const onnx::TensorProto& tensor);
// Returns elements of any integer type or bool, widened to int64. Returns InvalidArgument for other
// types, a wrong number of bytes, or a uint64 above the largest int64.
absl::StatusOr<std::vector<int64_t>> ReadInts(const onnx::TensorProto& tensor);
// Returns elements of float16, bfloat16, float32 or float64, widened to double. Returns
// InvalidArgument for other types or a wrong number of bytes.
absl::StatusOr<std::vector<double>> ReadFloats(const onnx::TensorProto& tensor);

// Returns the elements as little-endian bytes; elements of less than a byte are packed from the low
// bits on. Returns InvalidArgument for strings, for more than one field with values, or if the
// number of bytes is not what the type and the dims need.
absl::StatusOr<std::string> InlineBytes(const onnx::TensorProto& tensor);
// Returns the number of bytes that `num_elements` elements take, rounded up. Returns
// InvalidArgument for types without a fixed size, or if the number of elements or bytes is above
// 2^62.
absl::StatusOr<int64_t> ByteSize(int32_t elem_type, int64_t num_elements);

// Returns an int64 tensor of shape `dims`; `values` are its elements in row-major order.
onnx::TensorProto MakeInt64Tensor(std::string name, const std::vector<int64_t>& dims,
                                  const std::vector<int64_t>& values);

}  // namespace kvlift
