// Reads the words of the options of `convert`, for the command line and the Python package.
#pragma once

#include "absl/status/statusor.h"
#include "commands.h"
#include "pipeline/pipeline.h"
#include "rewrite/convert.h"

namespace kvlift::cli {

// InvalidArgument names the option with a word that it does not know.
absl::StatusOr<ConvertOptions> OptionsOf(const ConvertFlags& flags);
// `flags` have passed OptionsOf.
ProvingOptions ProvingOf(const ConvertFlags& flags);

}  // namespace kvlift::cli
