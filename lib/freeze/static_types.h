// Declares the type of every value of a model whose inputs have static shapes.
#pragma once

#include <optional>

#include "absl/status/statusor.h"
#include "base/findings.h"
#include "onnx/onnx_pb.h"

namespace kvlift {

// Infers the types of all values of the main graph, by ONNX's shape inference and, for operators
// that it does not know, by their forms, and declares them with numbers only. Returns a finding if
// inference fails because assigned sizes contradict each other (KV260), or about the first node
// that has a result without a static shape (KV261); nullopt if all shapes are static. Fails as
// Graph::Build.
absl::StatusOr<std::optional<Finding>> DeclareStaticTypes(onnx::ModelProto* model);

}  // namespace kvlift
