// Names and texts of a model are hostile until escaped: one function per sink.
#pragma once

#include <string>
#include <string_view>

namespace kvlift {

// For terminals and plain-text logs. C0 and C1 controls (ESC and newlines too), DEL, line and
// paragraph separators, bidirectional controls and bytes that are not UTF-8 become visible escapes:
// "\n", "\x1b", "\u202e". A backslash stays as it is: the result is for eyes, not for parsing.
std::string EscapeTerminal(std::string_view text);

// Valid UTF-8: each byte that belongs to no well-formed sequence becomes U+FFFD. What a JSON
// library takes as a string value; quoting is left to it.
std::string ToValidUtf8(std::string_view text);

}  // namespace kvlift
