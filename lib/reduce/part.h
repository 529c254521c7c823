// Parts of a subject: the nodes that compute some values from others.
#pragma once

#include <string>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/status/statusor.h"
#include "reduce/shared_values.h"

namespace kvlift {

struct PartEnds {
  // Outputs that the part does not give; of a pair, names in the conversion. The output of a cache
  // stays in a pair as long as a node reads the cache.
  absl::flat_hash_set<std::string> dropped_outputs;
  // Shared values that become graph inputs, in both models of a pair. SharedValue::may_be_input
  // must hold for them.
  absl::flat_hash_set<std::string> entering;
  // Shared values that become graph outputs, if they are not outputs already.
  // SharedValue::may_be_output must hold for them.
  std::vector<std::string> added_outputs;
  // Graph inputs that no node reads and that the part does not keep; of a pair, names in either
  // model.
  absl::flat_hash_set<std::string> dropped_inputs;
};

// Returns the part of a subject between these ends. Of a pair, the relation is that of the part,
// and one cache stays at least, as a relation needs one. FailedPrecondition if the part has no
// outputs, or if an input would be missing on one side.
absl::StatusOr<Subject> PartOf(const SubjectGraphs& graphs, const PartEnds& ends);

}  // namespace kvlift
