// Small decoders at random: one layer with one or two heads of two elements, a vocabulary of four
// tokens, and a growing cache. Dimensions are named B, S, P and T = P + S.
#pragma once

#include "onnx/onnx_pb.h"
#include "soundness/sketch.h"

namespace kvlift::soundness {

onnx::ModelProto DrawSource(Random& random);

}  // namespace kvlift::soundness
