// Restricts a converted model to steps in which all sequences hold the same number of tokens.
#pragma once

#include "contract/manifest.h"
#include "onnx/onnx_pb.h"

namespace kvlift {

// Returns the converted model with each input [B] that holds past or total lengths, such as
// write_indices, read as its first number for all sequences. It equals `result` in all steps that
// `relation` allows if `relation` is uniform. Subgraphs keep reading the input itself.
onnx::ModelProto WithOneLength(const onnx::ModelProto& result, const Manifest& relation);

}  // namespace kvlift
