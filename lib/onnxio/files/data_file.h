// Files of external data. Their names come from models and are not trusted: they are relative, stay
// below the given folders, and name regular files. The open descriptor is checked, never a path
// that could change meanwhile.
#pragma once

#include <sys/stat.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "onnx/onnx_pb.h"
#include "onnxio/files/fd.h"

namespace kvlift {

// A tensor's reference to external data.
struct DataReference {
  std::string location;
  // In bytes.
  int64_t offset = 0;
  // In bytes; nullopt: to be computed from type and shape.
  std::optional<int64_t> length;
};

// Returns InvalidArgument (KV006) for unknown keys, repeated keys, and numbers that are not
// decimal.
absl::StatusOr<DataReference> ParseReference(const onnx::TensorProto& tensor);

// Returns InvalidArgument (KV004) unless the location is a relative path that does not leave its
// folder.
absl::Status CheckLocation(const std::string& location);

struct DataPolicy {
  // Symbolic links may lead to a file below any of the folders, as in stores that link snapshots to
  // blobs. If false, no part of a location may be a link.
  bool links = true;
  // True: a file that has several names (hard links) is accepted.
  bool hard_links = false;
};

struct DataFile {
  Fd fd;
  struct stat info {};
  std::string folder;  // the one of `folders` where the location was found
};

// Opens the location in the first folder that has it. NotFound if no folder has it; InvalidArgument
// if the location (KV004), a link or the kind of file (KV005) is refused; else as ErrnoStatus.
absl::StatusOr<DataFile> OpenDataFile(const std::vector<std::string>& folders,
                                      const std::string& location, const DataPolicy& policy);

// Returns the folders of a model's data: that of the model file, and that of the file it links to.
std::vector<std::string> DataFoldersOf(const std::string& model_path);

}  // namespace kvlift
