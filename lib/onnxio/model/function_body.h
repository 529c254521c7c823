// The function body by which ONNX defines an operator.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "onnx/defs/schema.h"

namespace kvlift {

// Stands for the element type of an input that is a sequence.
inline constexpr int32_t kSequenceInput = -1;

// Returns the function body, with the node's attributes where it depends on them; nullopt if the
// operator has none. `input_types` has the element type of each input, 0 if unknown.
// FailedPrecondition if the body depends on a type that is unknown; InvalidArgument if ONNX cannot
// build it.
absl::StatusOr<std::optional<onnx::FunctionProto>> FunctionBody(
    const onnx::OpSchema& schema, const onnx::NodeProto& node, int version,
    const std::vector<int32_t>& input_types);

}  // namespace kvlift
