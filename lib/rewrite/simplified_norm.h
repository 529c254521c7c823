// ONNX Runtime's SimplifiedLayerNormalization stands in the default domain, where ONNX does not
// know it: its checker would refuse a converted model that kept it.
#pragma once

#include "onnx/onnx_pb.h"

namespace kvlift {

// Replaces it by RMSNormalization-23, which computes the same, wherever only its first output is
// used. The default opset of the model is 23 or later.
// Source: ONNX Runtime's contrib operators; ONNX RMSNormalization-23.
void ReplaceSimplifiedNorms(onnx::ModelProto* model);

}  // namespace kvlift
