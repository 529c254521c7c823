// Declares the type of every value of a model whose inputs have static shapes.
#pragma once

#include <optional>

#include "absl/status/statusor.h"
#include "base/findings.h"
#include "onnx/onnx_pb.h"

namespace kvlift {

// Infers the types of all values of the main graph, by ONNX's shape inference and, for operators
// that it does not know, by their forms, and declares them with numbers only. Returns a refusal
// if inference fails, since sizes that were assigned contradict each other (KV260), or for the
// first node of which a result has no static shape (KV261). Fails as Graph::Build.
absl::StatusOr<std::optional<Finding>> DeclareStaticTypes(onnx::ModelProto* model);

}  // namespace kvlift
