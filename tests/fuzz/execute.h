// Runs any model for a few small steps, and keeps what the executor is asked for small.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "onnxio/model.h"

namespace kvlift::fuzz {

// Two steps with caches in place and two with copies, on the same values drawn from `seed`:
// results and errors must be the same.
void ExecuteSomehow(const Model& model, uint64_t seed);

// Small decoders before and after their conversion.
const std::vector<std::pair<Model, Model>>& SmallPairs();

// The model runs with sizes that all differ, and gives what it declares for them: it does not rest
// on a batch as long as the past, or on a name that stands for two sizes.
bool RunsAsDeclared(const Model& model);

}  // namespace kvlift::fuzz
