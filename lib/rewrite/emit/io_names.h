// Gives the inputs and outputs of caches the names that exporters of static caches write, from role
// and layer: key_cache.0 and updated_key_cache.0.
#pragma once

#include "absl/status/statusor.h"
#include "base/findings.h"
#include "rewrite/emit/emission.h"

namespace kvlift {

// Renames inputs and outputs of all caches in the model and in its manifest. Returns KV229, and
// renames nothing, if a cache holds both keys and values, or if a name is taken.
absl::StatusOr<std::optional<Finding>> NameCachesByLayer(Emission* emission);

}  // namespace kvlift
