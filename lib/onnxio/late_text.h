// Files with a text in them that costs time to make, such as a digest of gigabytes.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "onnxio/model.h"

namespace kvlift {

// Whatever is written of `stand_in` becomes `text`, which is as long. Nothing else in the files is
// equal to the stand-in.
struct LateText {
  std::string stand_in;
  std::function<std::string()> text;
};

// As WritePieces of copy.h. The text is asked for when what stands in front of it is on its way to
// the disk.
absl::Status WritePieces(int fd, const std::vector<Piece>& pieces, const std::string& shown,
                         const WriteProgress& progress, const LateText& late);
// As WriteFiles of model.h. The largest file is written first, and renamed in its turn.
absl::Status WriteFiles(const std::vector<OutputFile>& files, const WriteProgress& progress,
                        const LateText& late);

}  // namespace kvlift
