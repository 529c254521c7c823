// Checks that every converted model must pass before anything is proved of it.
#pragma once

#include "absl/status/status.h"
#include "contract/manifest.h"
#include "onnxio/model.h"
#include "rewrite/convert.h"

namespace kvlift {

// Returns OK if the result passes ONNX's checker, strict shape inference and the rules of `check`
// (lib/lint); otherwise the first error. Warnings do not count.
absl::Status CheckResult(const Model& result, const Manifest& manifest);
// Returns an error if the result has two nodes of one name, which runtimes refuse, and its source
// does not.
absl::Status CheckAddedNames(const Model& source, const Model& result);

// Returns the error to report after one of these checks failed with `status`: InvalidArgument with
// a code if the source breaks a rule itself, or declares sizes that its operators contradict
// (KV031); otherwise Internal, for a bug of kvlift.
absl::Status BlameFor(const Model& source, const Model& result, const absl::Status& status);

// Refuses a conversion with --tree-mask (KV235) if the number of a slot means anything to the
// result (maintenance/slots.h): tokens of a tree share positions, and each has its own slot. Does
// nothing if there is no model.
void RefuseTree(Conversion* conversion);

}  // namespace kvlift
