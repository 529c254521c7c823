#include "base/findings.h"

#include <algorithm>
#include <array>

namespace kvlift {
namespace {

// Sorted by code. Every code is triggered by at least one test (tests/findings_coverage_test).
constexpr auto kFindings = std::to_array<FindingInfo>({
    // KV0xx: reading.
    {"KV001", "unreadable", "the file cannot be read as an ONNX model",
     "Nothing else can be said about a file that does not parse.",
     "Check the path and that the file is complete; external data must lie beside the model."},
    // KV1xx: ONNX and operator rules.
    // KV2xx: not convertible.
    // KV3xx: preconditions.
    // KV4xx: verification.
    // KV5xx: writing.
});

}  // namespace

absl::Span<const FindingInfo> AllFindings() { return kFindings; }

const FindingInfo* FindFinding(std::string_view code) {
  const auto* it =
      std::lower_bound(kFindings.begin(), kFindings.end(), code,
                       [](const FindingInfo& info, std::string_view c) { return info.code < c; });
  return it != kFindings.end() && it->code == code ? it : nullptr;
}

}  // namespace kvlift
