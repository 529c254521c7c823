// Writes arrays in NumPy's .npz format: a ZIP archive of .npy files, not compressed. Sources: NEP
// 1, and PKWARE's APPNOTE.TXT.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "exec/memory/tensor.h"

namespace kvlift::cli {

// The bytes of an archive. Equal arrays give equal bytes.
class NpzWriter {
 public:
  // Names must be unique and ASCII. Errors are those of NpyOf (kvlift/inputs/npy.h);
  // ResourceExhausted if the archive gets larger than 2 GiB.
  absl::Status Add(std::string_view name, const exec::View& tensor);
  // Returns the archive; nothing can be added afterwards.
  std::string Finish();

 private:
  std::string bytes_, directory_;
  int count_ = 0;
};

}  // namespace kvlift::cli
