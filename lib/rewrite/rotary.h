// Rotations of pairs (RoPE) that are spelt out, as one RotaryEmbedding-23 each:
//
//   y[d] = x[d] * cos[d] - x[d + D/2] * sin[d]        for d < D/2
//   y[d] = x[d] * cos[d] + x[d - D/2] * sin[d]        otherwise
//
// x [B, N, S, D], float32; cos and sin [B or 1, 1, S, D], whose second half repeats the first. The
// sums and products are the operator's, so that an engine that rounds each of them gives the same
// bits.
#pragma once

#include "absl/status/statusor.h"
#include "contract/manifest.h"
#include "onnx/onnx_pb.h"

namespace kvlift {

// The model with its rotations replaced. The relation tells which layers they belong to.
absl::StatusOr<onnx::ModelProto> FuseRotations(onnx::ModelProto model, const Manifest& relation);

}  // namespace kvlift
