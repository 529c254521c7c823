// Binds the tensors with external data to their files.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "ir/spans.h"
#include "onnx/onnx_pb.h"
#include "onnxio/data_file.h"
#include "onnxio/limits.h"

namespace kvlift {

struct Resolved {
  std::vector<std::shared_ptr<const SpanSource>> sources;  // one per file
  int64_t bytes = 0;                                       // of all tensors with external data
};

// Every reference is checked: location, keys, length against type and shape, range against the size
// of the file. Tensors become spans; small ones, and the integers ONNX's inference may read, become
// part of the model. A file that is not there is no error: its tensors stay as they are.
absl::StatusOr<Resolved> ResolveExternalData(const std::vector<std::string>& folders,
                                             const DataPolicy& policy, const Limits& limits,
                                             onnx::ModelProto* model);

}  // namespace kvlift
