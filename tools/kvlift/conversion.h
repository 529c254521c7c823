// Turns the words of the options of `convert` into options of the library, for the command line and
// the Python package.
#pragma once

#include "absl/status/statusor.h"
#include "commands.h"
#include "pipeline/pipeline.h"
#include "rewrite/convert.h"

namespace kvlift::cli {

// Returns InvalidArgument, naming the option, for a word that it does not know.
absl::StatusOr<ConvertOptions> OptionsOf(const ConvertFlags& flags);
// The flags must have passed OptionsOf.
ProvingOptions ProvingOf(const ConvertFlags& flags);
StepRequest StepsOf(const ConvertFlags& flags);

}  // namespace kvlift::cli
