// Checks that every converted model must pass before anything is proved about it.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "contract/manifest.h"
#include "lint/lint.h"
#include "onnxio/model/model.h"
#include "rewrite/convert/convert.h"

namespace kvlift {

// The outcome of one check.
struct CheckOutcome {
  std::string check;        // "ONNX checker", "shape inference", "lint", "node names"
  absl::Status status;      // OK if the model passed
  std::vector<Lint> lints;  // of "lint", warnings included
};

// Runs ONNX's checker, strict shape inference, the rules of `check` (lib/lint), whose warnings do
// not count, and a check that no two nodes have one name, which runtimes refuse, unless the source
// has such nodes as well. Returns the outcomes up to the first check that fails. `manifest` may be
// null: the rules about manifests are left out then.
std::vector<CheckOutcome> CheckEach(const Model& source, const Model& result,
                                    const Manifest* manifest);
// Returns the status of the last outcome, which is the only one that may be an error.
absl::Status StatusOf(const std::vector<CheckOutcome>& outcomes);
// Runs all but the last of these checks and returns the first error.
absl::Status CheckResult(const Model& result, const Manifest& manifest);

// Returns the error to report after one of these checks failed with `status`: InvalidArgument with
// a code if the source breaks a rule itself, or declares sizes that its operators contradict
// (KV031); otherwise Internal, for a bug of kvlift. lowered: the source after the step `lower`, in
// which ONNX's operators stand for those of other domains, so that shape inference knows their
// results; null if there is none.
absl::Status BlameFor(const Model& source, const Model& result, const absl::Status& status,
                      const onnx::ModelProto* lowered = nullptr);

// Marks the conversion as refused: no cache and no attention counts as converted, and caches and
// attentions without a reason of their own get `reason`. A reason that names neither nodes
// nor values gets the attention's nodes, or the node of the source that makes the cache's present
// and the names of its past and present. The model stays in the conversion.
void RefuseAll(const Finding& reason, const onnx::ModelProto& source, Conversion* conversion);

// Removes the model and refuses the conversion (KV235) if its results depend on the numbers of
// slots (maintenance/slots.h). Must be called for conversions with --tree-mask, because tokens of a
// tree share positions while each has its own slot. Does nothing if there is no model.
void RefuseTree(const onnx::ModelProto& source, Conversion* conversion);

}  // namespace kvlift
