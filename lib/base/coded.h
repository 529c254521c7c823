// Statuses that carry the code of a finding ("KV024", see base/findings.h), so that the caller that
// prints the error can print its code.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/status.h"

namespace kvlift {

// Returns `status` with `code` attached, in place of a code that it has already. An OK status is
// returned unchanged.
absl::Status Coded(std::string_view code, absl::Status status);
// Returns `status` with `code` attached, unless it has a code already.
absl::Status CodedIfNone(std::string_view code, absl::Status status);
// Returns the code of a status, or an empty string if it has none.
std::string CodeOf(const absl::Status& status);
// Returns a status with the message "PREFIX: MESSAGE", the same absl::StatusCode and the same code
// of a finding.
absl::Status Prefixed(std::string_view prefix, const absl::Status& status);

}  // namespace kvlift
