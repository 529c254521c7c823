// System errors as statuses.
#pragma once

#include <string_view>

#include "absl/status/status.h"

namespace kvlift {

// Returns a status "WHAT: text of the error". NotFound; PermissionDenied (also for read-only file
// systems and links); ResourceExhausted (disk, quota, file size limit, memory, descriptors); else
// Internal.
absl::Status ErrnoStatus(int error, std::string_view what);

}  // namespace kvlift
