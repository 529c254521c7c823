// Where rounding differences between two models begin: which values of the converted model are, by
// name, bit for bit those of the source, and the first that is not.
#pragma once

#include <cstdint>
#include <string>

#include "absl/container/flat_hash_set.h"
#include "contract/manifest.h"
#include "ir/graph.h"
#include "verify/drive.h"
#include "verify/verify.h"

namespace kvlift {

// Names of values of `after` that are made by the nodes that make them in `source`, from equal
// constants and inputs that both models are fed alike: equal by construction.
absl::flat_hash_set<std::string> UnchangedValues(const Graph& source, const Graph& after,
                                                 const Manifest& relation);

// Runs one step of both models, whose caches hold the same rows.
RoundingReport FindFirstDifference(Runner& source, Runner& converted, const StepFeeds& feeds,
                                   const Manifest& relation);

}  // namespace kvlift
