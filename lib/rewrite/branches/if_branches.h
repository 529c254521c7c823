// Inlines the branches of If nodes whose conditions are known.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "onnx/onnx_pb.h"
#include "sym/forms/forms.h"

namespace kvlift {

// Returns the value of a condition, or nullopt if it is not known.
using ConditionFn = std::function<std::optional<bool>(sym::Forms& forms, ValueId condition)>;

// Inlines the branch of every If of the main graph whose condition is known, until none is left.
// Names of values and nodes of the branch get a number where they are taken; outputs of the If, and
// inputs and outputs of the model, keep their names. InvalidArgument if a branch has another number
// of outputs than its If.
absl::StatusOr<onnx::ModelProto> InlineBranches(const onnx::ModelProto& model,
                                                const ConditionFn& truth);

// Returns true if a branch of the If gives a constant with an extent of 0 for the output.
bool GivesNothing(const onnx::NodeProto& node, int output);

}  // namespace kvlift
