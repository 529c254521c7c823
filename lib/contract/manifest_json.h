// Writes manifests and their parts as JSON documents. It is a header of its own because that of the
// JSON library takes long to compile.
#pragma once

#include "absl/types/span.h"
#include "contract/manifest.h"
#include "nlohmann/json.hpp"

namespace kvlift {

// Returns a manifest as JSON. Keys that the schema does not require are left out if their value is
// absent or empty.
nlohmann::ordered_json ToJson(const Manifest& manifest);
// Returns a list of assumptions as JSON, as manifests and `verify --json` have it.
nlohmann::ordered_json ToJson(absl::Span<const Assumption> assumptions);

}  // namespace kvlift
