// What every front of `convert` does: read the words of its options, check what came out.
#pragma once

#include "absl/status/statusor.h"
#include "commands.h"
#include "contract/manifest.h"
#include "onnxio/model.h"
#include "rewrite/convert.h"

namespace kvlift::cli {

// InvalidArgument names the option with a word that it does not know.
absl::StatusOr<ConvertOptions> OptionsOf(const ConvertFlags& flags);

// The result must satisfy ONNX and our own rules; anything else is our bug.
absl::Status CheckResult(const Model& result, const Manifest& manifest);
// Of a result that does not: what is wrong with the source, InvalidArgument with its code, or
// Internal.
absl::Status BlameFor(const Model& source, const absl::Status& result);

}  // namespace kvlift::cli
