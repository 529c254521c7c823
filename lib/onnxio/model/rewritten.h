// The result of a pass that writes parts of a model in another form.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "onnx/onnx_pb.h"

namespace kvlift {

struct RewrittenModel {
  onnx::ModelProto model;
  // For each part that was rewritten: the prefix of the names of the new nodes, and the name of the
  // node that they replace.
  std::vector<std::pair<std::string, std::string>> replaced;
};

}  // namespace kvlift
