// Finds the caches and attentions of a model and rewrites them to TensorScatter-24 plus
// Attention-24. Converts all caches or none, unless partial conversion is allowed.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "onnxio/model/model.h"
#include "rewrite/types/conversion.h"
#include "rewrite/types/options.h"
#include "rewrite/types/rule.h"
#include "rewrite/types/steps.h"

namespace kvlift {

// Errors of the functions below: InvalidArgument for a broken model; OutOfRange if the model takes
// more than sym::MaxSteps() of symbolic arithmetic. A model that cannot be converted is not an
// error: the result says why. `rules` is AllRules() (rewrite/types/rule.h).

// Lists what Convert would find and refuse with default options. Makes no model.
absl::StatusOr<Inspection> Inspect(const Model& model, RuleTable rules);
// Runs the steps from lower to emit. Does not check the result and proves nothing of it: see
// pipeline/pipeline.h. Also returns InvalidArgument for names of inputs and outputs that are not
// UTF-8, and the errors of trace.take.
absl::StatusOr<Conversion> Convert(const Model& model, const ConvertOptions& options,
                                   RuleTable rules, const StepTrace& trace = {});
// Removes the model from a conversion that StepTrace::stop_after ends early.
void StopConversion(Conversion* conversion);
// Returns the forms of a node's outputs, and one line per rule that says whether it matches the
// node. NotFound: the model has no such node.
absl::StatusOr<std::vector<std::string>> ExplainNode(const Model& model, const std::string& node,
                                                     RuleTable rules);

}  // namespace kvlift
