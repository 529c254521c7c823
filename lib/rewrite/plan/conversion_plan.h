// The plan of a conversion: the patch that makes the converted model, and its manifest, or the
// reason why nothing is converted.
#pragma once

#include <optional>
#include <vector>

#include "base/findings.h"
#include "contract/manifest.h"
#include "ir/patch.h"

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

}  // namespace kvlift
