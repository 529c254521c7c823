// The text of a manifest, as it stands in a file or in a model.
#pragma once

#include <string>

#include "contract/manifest.h"

namespace kvlift {

// The text of OUT.kv.json, or on one line. What is not UTF-8 in reasons and names of nodes becomes
// U+FFFD; the names of inputs and outputs are UTF-8.
std::string ManifestText(const Manifest& manifest, bool one_line = false);

}  // namespace kvlift
