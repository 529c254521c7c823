// Replaces what a model computes from its static shapes alone by constants.
#pragma once

#include "absl/status/statusor.h"
#include "onnx/onnx_pb.h"

namespace kvlift {

// Folds integers and truths whose elements follow from sizes and constants (sym/forms/forms.h), up
// to 4096 of them in a tensor, and drops the nodes that nothing reads any more. Real numbers are
// left to the nodes that compute them. Also makes initialisers of large Constant nodes, which then
// can share a file with others. Declared types of inner values are dropped. Fails as Graph::Build.
absl::StatusOr<onnx::ModelProto> FoldConstants(const onnx::ModelProto& model);

}  // namespace kvlift
