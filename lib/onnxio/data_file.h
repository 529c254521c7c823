// Files of external data. Their names stand in models and are not trusted: they are relative, stay
// below the folders given, and name regular files. What is checked is the open descriptor, never a
// path that could change meanwhile.
#pragma once

#include <sys/stat.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "onnx/onnx_pb.h"
#include "onnxio/fd.h"

namespace kvlift {

struct DataReference {
  std::string location;
  int64_t offset = 0;
  std::optional<int64_t> length;
};

// InvalidArgument for unknown keys, keys that stand twice, and numbers that are no decimal sizes.
absl::StatusOr<DataReference> ParseReference(const onnx::TensorProto& tensor);

// InvalidArgument unless the location is a relative path that stays where it starts.
absl::Status CheckLocation(const std::string& location);

struct DataPolicy {
  // A symbolic link may lead to a file below any of the folders (as in stores that link snapshots
  // to blobs); without, no part of a location may be a link.
  bool links = true;
  // Files with more than one name.
  bool hard_links = false;
};

struct DataFile {
  Fd fd;
  struct stat info {};
  std::string folder;  // of `folders`, where the location was found
};

// Tries the folders in order. NotFound if none has it; InvalidArgument if the location, a link or
// the kind of file is refused (KV004, KV005).
absl::StatusOr<DataFile> OpenDataFile(const std::vector<std::string>& folders,
                                      const std::string& location, const DataPolicy& policy);

// The folders for a model file: its own, and that of the file it links to.
std::vector<std::string> DataFoldersOf(const std::string& model_path);

}  // namespace kvlift
