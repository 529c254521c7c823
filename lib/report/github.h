// Annotations of GitHub Actions: a workflow command per finding.
#pragma once

#include <string>

#include "absl/types/span.h"
#include "report/diagnostic.h"

namespace kvlift {

// One line each, "::error file=PATH,title=KV121 update-too-long::TEXT". Ends with a newline unless
// empty.
std::string GithubAnnotations(absl::Span<const Diagnostic> diagnostics);

}  // namespace kvlift
