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

// Writes the pieces to the start of an empty file: it shares the blocks of a whole file where the
// file system can, else lets the kernel copy, else writes from memory. Space is reserved first, so
// that a full disk shows before the work. `shown` names the file in errors; `progress` may be null.
// Fails as WriteFailed.
absl::Status WritePieces(int fd, const std::vector<Piece>& pieces, const std::string& shown,
                         const WriteProgress& progress);

// Returns ErrnoStatus with a finding code: KV504 if there is no space left, else KV501.
absl::Status WriteFailed(int error, std::string_view what, const std::string& shown);

}  // namespace kvlift
