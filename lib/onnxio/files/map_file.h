// Memory maps of files.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "onnxio/files/fd.h"

namespace kvlift {

struct MappedFile {
  std::string_view bytes;
  std::shared_ptr<const void> owner;  // keeps the map and the descriptor
  int fd = -1;                        // open while `owner` lives, if `keep_open`; else -1
};

// Maps a regular file of `size` bytes, read-only and private. Pages are read when they are used; if
// the file has become shorter by then, that raises SIGBUS. Without `keep_open`, maps of one
// unchanged file are shared. Fails as ErrnoStatus.
absl::StatusOr<MappedFile> MapFile(Fd fd, int64_t size, bool keep_open);

// Returns the SHA-256 of the bytes of a MappedFile as lower-case hex. Releases its pages once they
// are read.
std::string Sha256OfMap(std::string_view mapped);

}  // namespace kvlift
