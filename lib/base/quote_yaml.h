// Quotes text of a model for YAML. base/escape.h has the functions for the other formats.
#pragma once

#include <string>
#include <string_view>

namespace kvlift {

// Returns a double-quoted YAML scalar in ASCII. Quotes, backslashes, control characters and all
// characters outside ASCII become escapes that YAML 1.1 and 1.2 share, so that every reader gives
// the text back. A byte that is not part of valid UTF-8 becomes U+FFFD.
std::string QuoteYaml(std::string_view text);

}  // namespace kvlift
