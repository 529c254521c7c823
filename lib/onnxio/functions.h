// Model-local functions: checks of their calls, and default attributes.
#pragma once

#include "absl/status/status.h"
#include "onnx/onnx_pb.h"
#include "onnxio/limits.h"

namespace kvlift {

// Returns InvalidArgument (KV007) for functions that call themselves or are defined twice;
// OutOfRange if calls are nested deeper than Limits::call_depth, or inlining all of them would give
// more than Limits::nodes.
absl::Status CheckCallDepth(const onnx::ModelProto& model, const Limits& limits);

// Writes the default attributes that a function declares to each call that omits them, since ONNX's
// inliner removes an attribute from the body if the call omits it.
void AddDefaultAttributes(onnx::ModelProto* model);

}  // namespace kvlift
