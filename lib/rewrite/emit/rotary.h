// Replaces the rotations of a plan by RotaryEmbedding-23.
#pragma once

#include "absl/status/statusor.h"
#include "onnx/onnx_pb.h"
#include "rewrite/plan/conversion_plan.h"

namespace kvlift {

// Returns the model of the plan's patch with each rotation of the plan that is in it replaced.
absl::StatusOr<onnx::ModelProto> FuseRotations(const Analysis& analysis, const ConversionPlan& plan,
                                               onnx::ModelProto model);

}  // namespace kvlift
