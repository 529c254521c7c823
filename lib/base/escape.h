// Names and texts of a model are hostile until escaped: one function per sink, and nothing prints
// what comes from a model in another way. All take any bytes; none makes an identifier or a file
// name of them, which are never taken from a model.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace kvlift {

// For terminals and plain-text logs. C0 and C1 controls (ESC and newlines too), DEL, line and
// paragraph separators, bidirectional controls and bytes that are not UTF-8 become visible escapes:
// "\n", "\x1b", "\u202e". A backslash stays as it is: the result is for eyes, not for parsing, and
// escaping it again changes nothing.
std::string EscapeTerminal(std::string_view text);

// Valid UTF-8: each byte that belongs to no well-formed sequence becomes U+FFFD. What a JSON
// library takes as a string value; quoting is left to it.
std::string ToValidUtf8(std::string_view text);
bool IsValidUtf8(std::string_view text);

// At most `max_bytes` of a text, cut between characters, and how many bytes were left out:
// "abc... (1048573 bytes more)".
std::string Shorten(std::string_view text, size_t max_bytes);

// For text and quoted attributes of HTML and of XML (JUnit). What EscapeTerminal shows as an escape
// is shown the same way.
std::string EscapeMarkup(std::string_view text);

// JSON text (ASCII or not) that may stand in a <script> element: no "<", ">" or "&" is left, nor a
// line separator that older JavaScript ends a string at. The JSON means the same.
std::string EscapeJsonInScript(std::string_view json);

// A quoted DOT string: never an HTML label, and no escape of Graphviz's ("\N", "\l") or entity of
// HTML is left in it.
std::string QuoteDot(std::string_view text);

// For workflow commands of GitHub Actions ("::error file=PROPERTY::DATA"). Lines of data stay
// lines; all else is as EscapeTerminal.
std::string EscapeGithubData(std::string_view text);
std::string EscapeGithubProperty(std::string_view text);

// One cell of a Markdown table: no markup, no HTML, no end of the cell.
std::string EscapeMarkdown(std::string_view text);

// A path as the reference of a URI (SARIF): percent-encoded, slashes kept, and never a scheme.
std::string EscapeUriPath(std::string_view path);

// String literals in ASCII. Python: bytes that are not UTF-8 become lone surrogates, as
// os.fsdecode makes them. C++: the same bytes; with a NUL among them it needs the suffix sv or s.
std::string PythonLiteral(std::string_view text);
std::string CppLiteral(std::string_view text);

}  // namespace kvlift
