// Binds tensors with external data to their files.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "ir/spans.h"
#include "onnx/onnx_pb.h"
#include "onnxio/files/data_file.h"
#include "onnxio/files/limits.h"

namespace kvlift {

struct Resolved {
  std::vector<std::shared_ptr<const SpanSource>> sources;  // one per file
  int64_t bytes = 0;                                       // of all tensors with external data
};

// Opens and maps the data files and turns tensors into spans; small ones, and integers that ONNX's
// shape inference may read, are copied into the model. Checks location, keys, length against type
// and shape, and range against the size of the file. Tensors whose file does not exist stay as they
// are. InvalidArgument for a refused reference (KV004 to KV006), OutOfRange if a limit is exceeded
// or a tensor's range ends behind its file.
absl::StatusOr<Resolved> ResolveExternalData(const std::vector<std::string>& folders,
                                             const DataPolicy& policy, const Limits& limits,
                                             onnx::ModelProto* model);

}  // namespace kvlift
