// Puts the branches of If nodes in the place of the nodes, where their conditions are known.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "onnx/onnx_pb.h"
#include "sym/forms.h"

namespace kvlift {

// What is known about a condition: its value, or nothing.
using ConditionFn = std::function<std::optional<bool>(sym::Forms& forms, ValueId condition)>;

// Inlines the chosen branch of every If whose condition is known, and what becomes an If of the
// main graph by that, too. Names of the branch stay where they are free, and get a number where
// they are not; outputs of the If keep their names. Inputs and outputs of the model stay.
absl::StatusOr<onnx::ModelProto> InlineBranches(const onnx::ModelProto& model,
                                                const ConditionFn& truth);

// Does one of the branches of an If give a constant without elements for the output?
bool GivesNothing(const onnx::NodeProto& node, int output);

}  // namespace kvlift
