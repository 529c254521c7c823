// Runs any model for a few small steps, with tight limits on sizes.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "onnxio/model/model.h"

namespace kvlift::fuzz {

// Runs two steps with caches in place and two with copies, on the same values drawn from `seed`.
// Aborts unless results and errors are the same.
void ExecuteSomehow(const Model& model, uint64_t seed);

// Returns small decoders before and after their conversion.
const std::vector<std::pair<Model, Model>>& SmallPairs();

// Returns true if the model runs with sizes that all differ, and its outputs have the declared
// types and shapes. Such a model does not need a batch as long as the past, or one dimension name
// for two sizes.
bool RunsAsDeclared(const Model& model);

}  // namespace kvlift::fuzz
