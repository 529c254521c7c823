// The quoting of names of a model in YAML, beside those of base/escape.h.
#pragma once

#include <string>
#include <string_view>

namespace kvlift {

// Returns a double-quoted YAML scalar in ASCII: quotes, backslashes, controls and everything
// outside of ASCII are escapes of YAML 1.1 and 1.2, so that all readers give the text back. The
// text must be valid UTF-8; each other byte becomes U+FFFD.
std::string QuoteYaml(std::string_view text);

}  // namespace kvlift
