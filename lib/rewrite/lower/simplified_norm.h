// Replaces SimplifiedLayerNormalization of ONNX Runtime. It is in the default domain, where ONNX
// does not define it, so ONNX's checker refuses a model that has it.
#pragma once

#include "onnx/onnx_pb.h"

namespace kvlift {

// Replaces each such node, also in subgraphs, by RMSNormalization-23, which computes the same.
// Nodes that name more than their first output stay. The default opset of the model must be 23 or
// later. Source: ONNX Runtime's contrib operators; ONNX RMSNormalization-23.
void ReplaceSimplifiedNorms(onnx::ModelProto* model);

}  // namespace kvlift
