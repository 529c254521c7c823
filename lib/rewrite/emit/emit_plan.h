// Turns a plan into a patch and a manifest. Decides nothing: an error is a bug of kvlift.
#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "contract/manifest.h"
#include "ir/patch.h"
#include "rewrite/emit/emission.h"
#include "rewrite/plan/conversion_plan.h"
#include "rewrite/recognise/analysis.h"

namespace kvlift {

struct EmittedPlan {
  Patch patch;
  Manifest manifest;                 // without source_sha256
  std::vector<EmittedCache> caches;  // by index of manifest.caches
};

// `plan` must be what MakePlan returned for the same analysis, and must not be refused.
absl::StatusOr<EmittedPlan> EmitPlan(const Analysis& analysis, const ConversionPlan& plan);

}  // namespace kvlift
