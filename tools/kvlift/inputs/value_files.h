// Files of one value, as ONNX's test data has them: a TensorProto, a SequenceProto or an
// OptionalProto (.pb), or an array (.npy).
#pragma once

#include <filesystem>
#include <string>

#include "absl/status/statusor.h"
#include "exec/memory/tensor.h"
#include "onnx/onnx_pb.h"

namespace kvlift::cli {

// Returns the type that the model declares for a graph input or output, and an empty one if it
// declares none.
const onnx::TypeProto& DeclaredType(const onnx::GraphProto& graph, const std::string& name);

// Reads a value of the declared type, or a tensor if that is empty. InvalidArgument if the file
// cannot be read, holds no such value, or if the type is a map or holds maps or sparse tensors.
absl::StatusOr<exec::Tensor> ReadValue(const std::filesystem::path& path,
                                       const onnx::TypeProto& declared);

// Returns the bytes of a .pb file with a value of the declared type. If that is empty, the value
// itself decides which proto is written.
std::string SerializeValue(const exec::Tensor& value, const std::string& name,
                           const onnx::TypeProto& declared);

}  // namespace kvlift::cli
