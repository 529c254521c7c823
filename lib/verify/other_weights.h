// Copies of a model that share its weights but for some, which are other tensors.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "ir/spans.h"
#include "onnx/onnx_pb.h"

namespace kvlift {

// The tensor in place of an initialiser; nullopt: the initialiser itself.
using OtherWeight =
    std::function<absl::StatusOr<std::optional<onnx::TensorProto>>(const onnx::TensorProto&)>;

// The copy keeps the model and `owner`. Errors are those of `other`.
absl::StatusOr<std::shared_ptr<onnx::ModelProto>> WithOtherWeights(
    const std::shared_ptr<const onnx::ModelProto>& model, std::shared_ptr<const void> owner,
    const OtherWeight& other);

// Bytes in memory that tensors can be spans of.
std::shared_ptr<const SpanSource> SourceOf(std::string bytes);
// A tensor of the name and dims of another, whose elements of this type are all of the source. The
// source has to outlive it.
onnx::TensorProto SpanTensor(const onnx::TensorProto& like, int32_t type, const SpanSource& source);

}  // namespace kvlift
