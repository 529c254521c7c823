// The function body by which ONNX defines an operator.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "onnx/defs/schema.h"

namespace kvlift {

// nullopt if the operator is no function. input_types: onnx TensorProto::DataType per input, 0 if
// unknown. FailedPrecondition if the body depends on a type that is not known, InvalidArgument if
// ONNX cannot build it.
absl::StatusOr<std::optional<onnx::FunctionProto>> FunctionBody(
    const onnx::OpSchema& schema, const onnx::NodeProto& node, int version,
    const std::vector<int32_t>& input_types);

}  // namespace kvlift
