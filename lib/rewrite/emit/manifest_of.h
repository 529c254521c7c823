// Makes the manifest of a planned conversion.
#pragma once

#include <string>

#include "contract/manifest.h"
#include "rewrite/plan/conversion_plan.h"

namespace kvlift {

// Returns the manifest without source_sha256. The plan must be MakePlan of the analysis, and not
// refused.
Manifest MakeManifest(const Analysis& analysis, const ConversionPlan& plan);

// Returns the part of genai_config.json that the model decides, as JSON text. Vocabulary, special
// tokens and lengths are left to the caller. Caches whose names follow no pattern with one number
// are left out.
std::string GenaiFragment(const Analysis& analysis, const Manifest& manifest);

}  // namespace kvlift
