// The step that reductions share which make the same edit in both models of a pair.
#pragma once

#include <functional>

#include "absl/status/statusor.h"
#include "reduce/shared_values.h"

namespace kvlift {

// Returns the subject with each of its models edited. The first error of `edit` ends it.
absl::StatusOr<Subject> EditEach(
    const SubjectGraphs& graphs,
    const std::function<absl::StatusOr<onnx::ModelProto>(const Graph& graph)>& edit);

}  // namespace kvlift
