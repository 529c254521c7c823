// Folds values that a model computes from its static shapes into constants.
#pragma once

#include "absl/status/statusor.h"
#include "onnx/onnx_pb.h"

namespace kvlift {

// Replaces tensors of int64, int32 and bool, of up to 4096 elements that follow from sizes and
// constants (sym/forms/forms.h), by constants, and drops nodes that nothing reads any more. Float
// tensors are not folded. Also turns large Constant nodes into initialisers, which can then share a
// file with others. Declared types of inner values are dropped. Fails as Graph::Build.
absl::StatusOr<onnx::ModelProto> FoldConstants(const onnx::ModelProto& model);

}  // namespace kvlift
