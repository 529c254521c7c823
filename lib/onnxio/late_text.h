// Writes files with a text in them that takes time to compute, such as the digest of gigabytes.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "onnxio/model.h"

namespace kvlift {

// A text to be filled in while files are written: every occurrence of `stand_in` becomes `text()`,
// which has the same length. The files must not contain the stand-in otherwise.
struct LateText {
  std::string stand_in;
  std::function<std::string()> text;
};

// Does what WritePieces of copy.h does. Calls `late.text` after the pieces before it are on their
// way to the disk.
absl::Status WritePieces(int fd, const std::vector<Piece>& pieces, const std::string& shown,
                         const WriteProgress& progress, const LateText& late);
// Does what WriteFiles of model.h does. The largest file is written first, but renamed in the given
// order.
absl::Status WriteFiles(const std::vector<OutputFile>& files, const WriteProgress& progress,
                        const LateText& late);

}  // namespace kvlift
