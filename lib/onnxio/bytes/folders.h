// Makes folders for outputs.
#pragma once

#include <string>

#include "absl/status/status.h"

namespace kvlift {

// Makes a folder and those above it. OK if it exists already, or is a link to a folder. Fails as
// WriteFailed.
absl::Status MakeFolders(const std::string& path);

// Returns true if nothing is at this path, or an empty folder.
bool IsFreeForFolder(const std::string& path);

}  // namespace kvlift
