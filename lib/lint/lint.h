// Lints any model: against the operator texts where they ask more than ONNX's shape inference
// checks, against its manifest if there is one, and against the rules of a runtime if one is named.
// Reports what is provably wrong and is silent where shapes or types are not known.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "base/findings.h"
#include "contract/manifest.h"
#include "onnxio/model/model.h"

namespace kvlift {

enum class Severity { kError, kWarning };

struct Lint {
  Severity severity = Severity::kError;
  Finding finding;
};

// Runtimes that require more than the operator texts do (lint/target.h).
enum class Profile { kOrt, kGenai, kGenaiStatic, kTensorRt, kPortable };

// Returns the findings about a model. Findings about the file come first, then those about nodes in
// topological order, about shared pasts, the manifest and the target. A model that ONNX's checker
// or shape inference refuses gives the finding KV101; the function returns an error only if
// functions cannot be inlined or the graph cannot be indexed (Graph::Build). `manifest` may be
// null.
absl::StatusOr<std::vector<Lint>> LintModel(const Model& model, const Manifest* manifest,
                                            std::optional<Profile> target = std::nullopt);

// Returns the first finding with severity kError, or null. It points into `lints`.
const Finding* FirstError(absl::Span<const Lint> lints);

}  // namespace kvlift
