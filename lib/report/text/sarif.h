// Findings as SARIF 2.1.0, the format of code scanning services.
#pragma once

#include <string_view>

#include "absl/types/span.h"
#include "nlohmann/json.hpp"
#include "report/text/diagnostic.h"

namespace kvlift {

// Returns a log of one run. Its rules are the codes of base/findings.h that occur. A finding
// without a known code becomes a notification of the run instead of a result.
nlohmann::ordered_json SarifLog(absl::Span<const Diagnostic> diagnostics,
                                std::string_view tool_version);

}  // namespace kvlift
