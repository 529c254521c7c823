// SARIF 2.1.0, the format of code scanning services.
#pragma once

#include <string_view>

#include "absl/types/span.h"
#include "nlohmann/json.hpp"
#include "report/diagnostic.h"

namespace kvlift {

// A log of one run. The rules are those of the finding table that occur; a finding without a code
// is a notification of the run, not a result.
nlohmann::ordered_json SarifLog(absl::Span<const Diagnostic> diagnostics,
                                std::string_view tool_version);

}  // namespace kvlift
