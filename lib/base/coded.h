// Statuses that carry the code of a finding (base/findings.h) to whoever prints them.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/status.h"

namespace kvlift {

// The status with a code attached, in place of one it had.
absl::Status Coded(std::string_view code, absl::Status status);
// As Coded, but a code that is there already stays.
absl::Status CodedIfNone(std::string_view code, absl::Status status);
// Empty if there is none.
std::string CodeOf(const absl::Status& status);
// "PREFIX: MESSAGE", with the same code.
absl::Status Prefixed(std::string_view prefix, const absl::Status& status);

}  // namespace kvlift
