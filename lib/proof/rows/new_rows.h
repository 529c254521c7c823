// Finds an input whose shape says how many rows a value has.
#pragma once

#include <optional>
#include <string>

#include "onnx/onnx_pb.h"

namespace kvlift {

// One axis of a graph input.
struct InputExtent {
  std::string input;
  int axis = 0;
};

// Returns an input axis that is always as long as the first axis of `value`. Returns nullopt if
// none is found, or if the model has an opset below 7 or is not a valid graph.
std::optional<InputExtent> FirstExtentOf(const std::string& value, const onnx::ModelProto& model);

}  // namespace kvlift
