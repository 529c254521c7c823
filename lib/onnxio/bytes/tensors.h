// Visits all tensors of a model: initializers and sparse initializers, attributes of every kind,
// bodies, functions with their attribute defaults, and training graphs.
#pragma once

#include <functional>

#include "onnx/onnx_pb.h"

namespace kvlift {

void ForEachTensor(const onnx::ModelProto& model,
                   const std::function<void(const onnx::TensorProto&)>& visit);
void ForEachMutableTensor(onnx::ModelProto& model,
                          const std::function<void(onnx::TensorProto&)>& visit);

}  // namespace kvlift
