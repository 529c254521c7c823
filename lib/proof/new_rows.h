// How many rows a value has, told by an input of the graph.
#pragma once

#include <optional>
#include <string>

#include "onnx/onnx_pb.h"

namespace kvlift {

struct InputExtent {
  std::string input;
  int axis = 0;
};

// An input with an axis that is as long as the first axis of the value, whatever is fed; nullopt if
// none is seen.
std::optional<InputExtent> FirstExtentOf(const std::string& value, const onnx::ModelProto& model);

}  // namespace kvlift
