// Files as memory.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "onnxio/fd.h"

namespace kvlift {

struct MappedFile {
  std::string_view bytes;
  std::shared_ptr<const void> owner;  // of the map and the descriptor
  int fd = -1;                        // open while owner lives, if `keep_open`
};

// Maps all of a regular file of `size` bytes, read-only and private. The pages are read when they
// are used; a file that is cut off meanwhile raises SIGBUS then.
absl::StatusOr<MappedFile> MapFile(Fd fd, int64_t size, bool keep_open);

// SHA-256 of the bytes of a MappedFile, whose pages are let go as soon as they were read.
std::string Sha256OfMap(std::string_view mapped);

}  // namespace kvlift
