// Replaces RoPE that is spelt out by RotaryEmbedding-23, one node for each rotation:
//
//   y[d] = x[d] * cos[d] - x[d + D/2] * sin[d]        for d < D/2
//   y[d] = x[d] * cos[d] + x[d - D/2] * sin[d]        otherwise
//
// x: [B, N, S, D], float32, D even. cos, sin: [B or 1, 1, S, D], float32; their second half repeats
// the first. The operator computes the same sums and products, so the bits are the same if each of
// them is rounded.
// Source: ONNX RotaryEmbedding-23.
#pragma once

#include "absl/status/statusor.h"
#include "contract/manifest.h"
#include "onnx/onnx_pb.h"

namespace kvlift {

// Returns the model with each rotation replaced. The relation gives the layers for the names of the
// new nodes.
absl::StatusOr<onnx::ModelProto> FuseRotations(onnx::ModelProto model, const Manifest& relation);

}  // namespace kvlift
