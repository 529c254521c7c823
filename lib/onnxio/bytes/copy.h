// Writes bytes to files, and lets the kernel copy bytes that are in another file already.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/status.h"
#include "onnxio/bytes/image.h"

namespace kvlift {

// Called with the bytes written so far and the bytes in all.
using WriteProgress = std::function<void(uint64_t done, uint64_t total)>;

// Writes the pieces to an empty file. A single piece that is a whole file shares its blocks
// (FICLONE) where the file system can do that; large pieces of open files are copied by the kernel
// (copy_file_range); all others are written from memory. Space is reserved first, so that a full
// disk is detected before anything is copied. `shown` names the file in errors; `progress` may be
// null. Fails as WriteFailed.
absl::Status WritePieces(int fd, const std::vector<Piece>& pieces, const std::string& shown,
                         const WriteProgress& progress);

// Returns ErrnoStatus with a finding code: KV504 if there is no space left, else KV501.
absl::Status WriteFailed(int error, std::string_view what, const std::string& shown);

}  // namespace kvlift
