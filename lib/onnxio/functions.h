// Model-local functions: what calls what, and with which attributes.
#pragma once

#include "absl/status/status.h"
#include "onnx/onnx_pb.h"
#include "onnxio/limits.h"

namespace kvlift {

// InvalidArgument for functions that call themselves or that exist twice (KV007); OutOfRange where
// calls are nested too deep, or inlining all of them would give too many nodes.
absl::Status CheckCallDepth(const onnx::ModelProto& model, const Limits& limits);

// Adds the attributes to each call that it leaves to the default which the function declares:
// ONNX's inliner takes a missing attribute for one that the body does not have either.
void AddDefaultAttributes(onnx::ModelProto* model);

}  // namespace kvlift
