// Finds operators of the default domain that compute something else in another opset, although name
// and attributes are the same.
#pragma once

#include <cstdint>
#include <string>

#include "onnx/onnx_pb.h"

namespace kvlift {

// Returns true for "" and "ai.onnx", the two names of the default domain.
bool IsDefaultDomain(const std::string& domain);

// Returns true if the operator changed its meaning in an opset above `from`, up to `to`.
bool ChangedMeaning(const std::string& op_type, int64_t from, int64_t to);

// Returns the first operator of the model that means something else in opset `version`, which may
// be newer or older than the model's own; an empty string if there is none. Looks into the bodies
// of If, Loop and Scan, but not into model-local functions.
std::string OperatorWithOtherMeaning(const onnx::ModelProto& model, int64_t version);

// Returns the version of the default domain that the model imports (the highest one if there are
// several), or 0 if it imports none.
int64_t DefaultOpset(const onnx::ModelProto& model);

}  // namespace kvlift
