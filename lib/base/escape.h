// Names and texts of a model are hostile until they are escaped. There is one function per output
// format, and text from a model is printed in no other way. Every function accepts arbitrary bytes.
// None of them makes identifiers or file names, which are never derived from a model.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace kvlift {

// Escapes text for terminals and plain-text logs. C0 and C1 controls (ESC and newlines too), DEL,
// line and paragraph separators, bidirectional controls and bytes that are not UTF-8 become visible
// escapes: "\n", "\x1b", "\u202e". A backslash stays as it is, because the result is read by people
// and never parsed; escaping it again changes nothing.
std::string EscapeTerminal(std::string_view text);

// Returns valid UTF-8: each byte outside a well-formed sequence becomes U+FFFD. The result is fit
// for a string value of a JSON library, which does the quoting.
std::string ToValidUtf8(std::string_view text);
// Returns true if the whole text is well-formed UTF-8.
bool IsValidUtf8(std::string_view text);

// Returns at most the first `max_bytes` bytes of a text, cut between UTF-8 characters, followed by
// the number of bytes that were left out: "abc... (1048573 bytes more)". A text of up to
// `max_bytes` bytes is returned unchanged.
std::string Shorten(std::string_view text, size_t max_bytes);

// Escapes text content and quoted attribute values of HTML and XML (JUnit). Characters that
// EscapeTerminal makes visible become the same visible escapes here.
std::string EscapeMarkup(std::string_view text);

// Escapes JSON text (ASCII or not) for a <script> element: the result has no "<", ">" or "&", and
// no line separator at which older JavaScript ends a string. The JSON keeps its meaning.
std::string EscapeJsonInScript(std::string_view json);

// Escape the data and the properties of workflow commands of GitHub Actions ("::error
// file=PROPERTY::DATA"). Line breaks in data are kept; all other unsafe characters become the
// visible escapes of EscapeTerminal.
std::string EscapeGithubData(std::string_view text);
std::string EscapeGithubProperty(std::string_view text);

// Returns a path as a URI reference (SARIF): percent-encoded, with slashes kept. The result never
// starts with a scheme or a host.
std::string EscapeUriPath(std::string_view path);

// Return an ASCII string literal with its quotes. Python: bytes that are not UTF-8 become lone
// surrogates, as os.fsdecode makes them. C++: the literal has the same bytes as the text; if NUL is
// one of them, the literal needs the suffix sv or s.
std::string PythonLiteral(std::string_view text);
std::string CppLiteral(std::string_view text);

}  // namespace kvlift
