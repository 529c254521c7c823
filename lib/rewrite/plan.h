// Turns an analysis into a patch and a manifest: one TensorScatter per cache, one Attention per
// site, masks and positions computed from the write index. An attention that cannot be replaced
// stays and reads the valid rows of the buffers.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "contract/manifest.h"
#include "ir/patch.h"
#include "rewrite/analysis.h"

namespace kvlift {

// Why a conversion is refused as a whole.
struct PlanRefusal {
  // kModel: this way to plan does not fit the model; another one may. kOption: an option asks for
  // what the model does not have, and every way to plan would refuse it.
  enum class Cause { kModel, kOption } cause = Cause::kModel;
  Finding finding;
};

struct ConversionPlan {
  std::optional<PlanRefusal> refusal;  // if set, patch and manifest are not valid
  // By index of Analysis::attention: why the attention stays; absent if an Attention-24 replaces
  // it. May be shorter, or incomplete, where `refusal` is set.
  std::vector<std::optional<Finding>> kept;
  Patch patch;
  Manifest manifest;  // without source_sha256
};

// Plans the conversion of every update of the analysis, of which there must be at least one. What
// cannot be converted is a refusal in the plan; an error is a bug of kvlift.
absl::StatusOr<ConversionPlan> MakePlan(Analysis& analysis, const ConvertOptions& options);

}  // namespace kvlift
