// Model-local functions: checks of their calls, which function a node calls, and default
// attributes.
#pragma once

#include "absl/status/status.h"
#include "onnx/onnx_pb.h"
#include "onnxio/files/limits.h"

namespace kvlift {

// Returns true for a function that is the body of an operator of com.microsoft which kvlift knows
// and leaves in its place, such as SkipLayerNormalization. Exporters add such bodies for runtimes
// without the operator, and ONNX leaves it to runtimes which of the two they run. kvlift takes the
// node for the operator and keeps the body in the model: a conversion has the same node with the
// same body, so either choice of a runtime means the same in both models. The body must call no
// other function.
bool IsBodyOfOperator(const onnx::FunctionProto& function);

// Returns InvalidArgument (KV007) for functions that call themselves, are defined twice, or have
// the name of an operator of ONNX in the imported version, or of com.microsoft unless
// IsBodyOfOperator: ONNX leaves it to runtimes which of the two a node calls, and its own inliner
// and reference implementation differ. Returns OutOfRange if calls are nested deeper than
// Limits::call_depth, or inlining all of them would give more than Limits::nodes.
absl::Status CheckCallDepth(const onnx::ModelProto& model, const Limits& limits);

// Returns the model-local function that a node calls; it takes precedence over an operator of the
// same name. Null if the model has no such function, or if IsBodyOfOperator holds for it.
const onnx::FunctionProto* FindFunction(const onnx::ModelProto& model, const onnx::NodeProto& node);

// Writes the default attributes that a function declares to each call that omits them, since ONNX's
// inliner removes an attribute from the body if the call omits it.
void AddDefaultAttributes(onnx::ModelProto* model);

}  // namespace kvlift
