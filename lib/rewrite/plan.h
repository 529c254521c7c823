// Turns an analysis into a patch and a manifest: one TensorScatter per cache, one Attention per
// site, masks drawn and positions derived again. Attentions that cannot be taken over stay as they
// are and read what is valid of the buffers.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "contract/manifest.h"
#include "ir/patch.h"
#include "rewrite/analysis.h"

namespace kvlift {

struct ConversionPlan {
  std::optional<Finding> refusal;  // then nothing else is valid
  // By index of Analysis::attention: why it stays; absent if it becomes an Attention.
  std::vector<std::optional<Finding>> kept;
  Patch patch;
  Manifest manifest;  // without source_sha256
};

// Every update of the analysis is converted. Status only for our own bugs.
absl::StatusOr<ConversionPlan> MakePlan(Analysis& analysis, const ConvertOptions& options);

}  // namespace kvlift
