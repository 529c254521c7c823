// Edits of a text, as a text case writes what differs from its base.
//
// They are the hunks of a unified diff without line numbers: a line that begins with a space stays,
// one with "-" goes, one with "+" is new. Empty lines separate the hunks. The lines of a hunk that
// stay or go must follow each other in the text at exactly one place, and hunks stand in the order
// of their places.
#pragma once

#include <string>

#include "absl/status/statusor.h"

namespace kvlift {

// Returns the text with all edits applied. Returns InvalidArgument, and names the hunk by its first
// line, if there is no hunk, or if one is malformed, changes nothing, has no place or several, or
// is not behind the hunk before it.
absl::StatusOr<std::string> ApplyEdits(const std::string& text, const std::string& edits);

}  // namespace kvlift
