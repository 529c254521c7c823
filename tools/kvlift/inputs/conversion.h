// Turns the words of the options of `convert` into options of the library, for the command line and
// the Python package.
#pragma once

#include <optional>

#include "absl/status/statusor.h"
#include "freeze/request.h"
#include "kvlift/commands/commands.h"
#include "pipeline/pipeline.h"
#include "rewrite/convert/convert.h"

namespace kvlift::cli {

// Returns InvalidArgument, naming the option, for a word that it does not know.
absl::StatusOr<ConvertOptions> OptionsOf(const ConvertFlags& flags);

// The flags of these functions must have passed OptionsOf. FreezeOf returns nullopt if --freeze is
// not given.
std::optional<FreezeRequest> FreezeOf(const ConvertFlags& flags);
ProvingOptions ProvingOf(const ConvertFlags& flags);
StepRequest StepsOf(const ConvertFlags& flags);

}  // namespace kvlift::cli
