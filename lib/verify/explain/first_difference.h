// Finds where rounding differences between the two models begin: compares, by name, the bytes of
// all values in one step, and names the first node of the converted model whose bytes differ.
#pragma once

#include <cstdint>
#include <string>

#include "absl/container/flat_hash_set.h"
#include "contract/manifest.h"
#include "ir/graph.h"
#include "verify/report/verify_report.h"
#include "verify/steps/drive.h"

namespace kvlift {

// Returns the values of `after` that equal those of `source` by construction: nodes of the same
// name of result, operator and attributes compute them in both models from equal constants, from
// inputs that the relation calls "same", and from such values. Names are those of `after`.
absl::flat_hash_set<std::string> UnchangedValues(const Graph& source, const Graph& after,
                                                 const Manifest& relation);

// Runs one step of both models on feeds whose caches hold the same rows, and compares the values of
// equal name, type and shape. The report's `step` is empty if a model does not run the step.
RoundingReport FindFirstDifference(Runner& source, Runner& converted, const StepFeeds& feeds,
                                   const Manifest& relation);

}  // namespace kvlift
