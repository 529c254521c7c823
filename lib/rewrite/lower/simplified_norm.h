// ONNX Runtime's SimplifiedLayerNormalization is in the default domain, where ONNX does not define
// it: ONNX's checker refuses a model that has it.
#pragma once

#include "onnx/onnx_pb.h"

namespace kvlift {

// Replaces it by RMSNormalization-23, which computes the same, where the node names only its first
// output; also in subgraphs. The default opset of the model must be 23 or later.
// Source: ONNX Runtime's contrib operators; ONNX RMSNormalization-23.
void ReplaceSimplifiedNorms(onnx::ModelProto* model);

}  // namespace kvlift
