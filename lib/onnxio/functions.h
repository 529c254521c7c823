// Model-local functions: checks of their calls, which function a node calls, and default
// attributes.
#pragma once

#include "absl/status/status.h"
#include "onnx/onnx_pb.h"
#include "onnxio/limits.h"

namespace kvlift {

// Returns InvalidArgument (KV007) for functions that call themselves, are defined twice, or have
// the name of an operator of ONNX in the imported version: ONNX leaves it to runtimes which of the
// two a node calls, and its own inliner and reference implementation differ; OutOfRange if calls
// are nested deeper than Limits::call_depth, or inlining all of them would give more than
// Limits::nodes.
absl::Status CheckCallDepth(const onnx::ModelProto& model, const Limits& limits);

// Returns the function that a node calls, which defines the node's operator also if an operator of
// the same name is known otherwise. Null if the model has no such function.
const onnx::FunctionProto* FindFunction(const onnx::ModelProto& model, const onnx::NodeProto& node);

// Writes the default attributes that a function declares to each call that omits them, since ONNX's
// inliner removes an attribute from the body if the call omits it.
void AddDefaultAttributes(onnx::ModelProto* model);

}  // namespace kvlift
