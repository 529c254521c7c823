// What every converted model must satisfy before anything is proved of it.
#pragma once

#include "absl/status/status.h"
#include "contract/manifest.h"
#include "onnxio/model.h"
#include "rewrite/convert.h"

namespace kvlift {

// The result satisfies ONNX's checker, strict shape inference and our own lint rules; anything else
// is an error of kvlift.
absl::Status CheckResult(const Model& result, const Manifest& manifest);
// Whether the result has two nodes of one name, which runtimes refuse, where its source has none.
absl::Status CheckAddedNames(const Model& source, const Model& result);

// The status to report where CheckResult failed for the result with `status`: InvalidArgument with
// its code, if the source breaks a rule itself, or declares sizes that its operators contradict
// (KV031); otherwise Internal.
absl::Status BlameFor(const Model& source, const Model& result, const absl::Status& status);

// Tokens of a tree share positions and have slots of their own. Where slots mean something to the
// result, the conversion is refused (KV235).
void RefuseTree(Conversion* conversion);

}  // namespace kvlift
