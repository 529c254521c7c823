// Turns an analysis whose caches and attentions all match into a patch and a manifest: one
// TensorScatter per cache, one Attention per site, masks drawn and positions derived again.
#pragma once

#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "contract/manifest.h"
#include "ir/patch.h"
#include "rewrite/analysis.h"

namespace kvlift {

struct ConversionPlan {
  std::optional<Finding> refusal;  // then nothing else is valid
  Patch patch;
  Manifest manifest;  // without source_sha256
};

// Every cache of the analysis must have a role in a site. Status only for our own bugs.
absl::StatusOr<ConversionPlan> MakePlan(Analysis& analysis, const ConvertOptions& options);

}  // namespace kvlift
