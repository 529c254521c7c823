// Findings as annotations of GitHub Actions: one workflow command per finding.
#pragma once

#include <string>

#include "absl/types/span.h"
#include "report/text/diagnostic.h"

namespace kvlift {

// Returns one line per finding, "::error file=PATH,title=KV121 update-too-long::TEXT", each with a
// newline at its end. Texts are escaped, and cut at 4096 bytes.
std::string GithubAnnotations(absl::Span<const Diagnostic> diagnostics);

}  // namespace kvlift
