// Read-only maps of external tensor data. The path stands in the model and is not trusted: it must
// be relative, stay below the base directory, and name a regular file that covers the range.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "onnx/onnx_pb.h"

namespace kvlift::exec {

struct MappedRange {
  std::shared_ptr<void> owner;  // unmaps when dropped
  const std::byte* data = nullptr;
  size_t size = 0;
};

// InvalidArgument for a bad path, offset or length; NotFound if the file cannot be opened;
// OutOfRange if it is too short. `expected` is the tensor's size in bytes.
absl::StatusOr<MappedRange> MapExternalData(const onnx::TensorProto& proto,
                                            const std::string& base_dir, size_t expected);

}  // namespace kvlift::exec
