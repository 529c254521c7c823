// The text of a manifest, as it is stored in a file or in a model.
#pragma once

#include <string>

#include "contract/manifest.h"

namespace kvlift {

// The value of the JSON key "schema".
inline constexpr char kManifestSchema[] = "kvlift/manifest/1";

// Returns the text of OUT.kv.json, indented or on one line. Bytes in reasons and names of nodes
// that are not UTF-8 become U+FFFD.
std::string ManifestText(const Manifest& manifest, bool one_line = false);

}  // namespace kvlift
