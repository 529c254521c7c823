// What runs leave behind that were killed.
#pragma once

#include <string>
#include <vector>

namespace kvlift {

// Temporary files of `path` (onnxio/model.h, WriteFiles) whose process is gone, sorted. Nothing
// reads or removes them.
std::vector<std::string> StaleTemporaries(const std::string& path);

}  // namespace kvlift
