// System errors as statuses.
#pragma once

#include <string_view>

#include "absl/status/status.h"

namespace kvlift {

// "WHAT: text of the error". NotFound, PermissionDenied (read-only file systems too),
// ResourceExhausted (disk, quota or file size limit, memory, descriptors), else Internal.
absl::Status ErrnoStatus(int error, std::string_view what);

}  // namespace kvlift
