// Temporary files that killed processes have left behind.
#pragma once

#include <string>
#include <vector>

namespace kvlift {

// Returns the temporary files of `path` (WriteFiles of onnxio/model/model.h) whose process has
// ended, sorted. Neither reads nor removes them.
std::vector<std::string> StaleTemporaries(const std::string& path);

}  // namespace kvlift
