// Writing bytes, and letting the kernel copy those that are in another file already.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/status.h"
#include "onnxio/image.h"

namespace kvlift {

// Bytes written so far, and of how many.
using WriteProgress = std::function<void(uint64_t done, uint64_t total)>;

// Writes the pieces to the start of an empty file: shares the blocks of a whole file where the file
// system can, else lets the kernel copy, else writes from memory. Room is taken first, so that a
// full disk shows before the work. `shown` names the file in errors.
absl::Status WritePieces(int fd, const std::vector<Piece>& pieces, const std::string& shown,
                         const WriteProgress& progress);

// The error with the code of the finding: KV504 where there is no room, else KV501.
absl::Status WriteFailed(int error, std::string_view what, const std::string& shown);

}  // namespace kvlift
