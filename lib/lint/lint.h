// Lints any model against the operator texts beyond what ONNX's shape inference refuses, against
// its manifest where there is one, and against the rules of a runtime where one is named. Reports
// everything it can prove wrong; what it cannot decide it does not report.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "base/findings.h"
#include "contract/manifest.h"
#include "onnxio/model.h"

namespace kvlift {

enum class Severity { kError, kWarning };

struct Lint {
  Severity severity = Severity::kError;
  Finding finding;
};

// Runtimes that ask more than the operator texts do (see target.h).
enum class Profile { kOrt, kGenai, kGenaiStatic, kTensorRt };

// `manifest` may be null. Findings in node order.
absl::StatusOr<std::vector<Lint>> LintModel(const Model& model, const Manifest* manifest,
                                            std::optional<Profile> target = std::nullopt);

// Null if there is none.
const Finding* FirstError(absl::Span<const Lint> lints);

}  // namespace kvlift
