// Model-local functions: what calls what.
#pragma once

#include "absl/status/status.h"
#include "onnx/onnx_pb.h"
#include "onnxio/limits.h"

namespace kvlift {

// InvalidArgument for functions that call themselves or that exist twice (KV007); OutOfRange where
// calls are nested too deep, or inlining all of them would give too many nodes.
absl::Status CheckCallDepth(const onnx::ModelProto& model, const Limits& limits);

}  // namespace kvlift
