// Operators that compute something else in a later operator set, under the same name and
// attributes.
#pragma once

#include <cstdint>
#include <string>

#include "onnx/onnx_pb.h"

namespace kvlift {

// Whether an operator of the default domain changed its meaning after operator set `from`, up to
// `to`.
bool ChangedMeaning(const std::string& op_type, int64_t from, int64_t to);

// An operator of the model that means something else in operator set `version`, later or earlier
// than the model's own; empty: none does. Bodies are looked at, functions are not.
std::string OperatorWithOtherMeaning(const onnx::ModelProto& model, int64_t version);

// The version of the default domain that the model imports; 0 if it imports none.
int64_t DefaultOpset(const onnx::ModelProto& model);

}  // namespace kvlift
