// Copies of a model in which some initialisers are replaced; all others are shared, not copied.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "ir/spans.h"
#include "onnx/onnx_pb.h"

namespace kvlift {

// Returns the tensor that replaces an initialiser; nullopt keeps the initialiser.
using OtherWeight =
    std::function<absl::StatusOr<std::optional<onnx::TensorProto>>(const onnx::TensorProto&)>;

// Returns the copy, which keeps `model` and `owner` alive. `other` is called for each initialiser
// of the main graph. Errors are those of `other`.
absl::StatusOr<std::shared_ptr<onnx::ModelProto>> WithOtherWeights(
    const std::shared_ptr<const onnx::ModelProto>& model, std::shared_ptr<const void> owner,
    const OtherWeight& other);

// Returns a copy that shares all initialisers and keeps `model` alive.
absl::StatusOr<std::shared_ptr<onnx::ModelProto>> WithSameWeights(
    const std::shared_ptr<const onnx::ModelProto>& model);

// Registers bytes in memory as a source that tensors can refer to (ir/spans.h).
std::shared_ptr<const SpanSource> SourceOf(std::string bytes);
// Returns a tensor with the name and dims of `like` and this element type, whose data is all bytes
// of the source. The source must outlive it.
onnx::TensorProto SpanTensor(const onnx::TensorProto& like, int32_t type, const SpanSource& source);

}  // namespace kvlift
