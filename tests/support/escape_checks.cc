#include "support/escape_checks.h"

#include <cstdint>
#include <cstdlib>
#include <utility>
#include <vector>

#include "base/escape.h"
#include "base/utf8.h"
#include "nlohmann/json.hpp"

namespace kvlift {
namespace {

std::string Replace(const std::string& text, std::string_view from, std::string_view to) {
  std::string out;
  for (size_t at = 0; at < text.size();) {
    if (text.compare(at, from.size(), from) == 0) {
      out += to;
      at += from.size();
    } else {
      out += text[at++];
    }
  }
  return out;
}

bool HasAnyOf(const std::string& text, std::string_view characters) {
  return text.find_first_of(characters) != std::string::npos;
}

bool IsPrintableAscii(const std::string& text) {
  for (const char c : text) {
    if (c < 0x20 || c > 0x7e) return false;
  }
  return true;
}

void AppendUtf8(uint32_t c, std::string* out) {
  if (c < 0x80) {
    *out += static_cast<char>(c);
  } else if (c >= 0xdc80 && c <= 0xdcff) {
    *out += static_cast<char>(c - 0xdc00);  // a lone surrogate, as os.fsdecode makes it
  } else if (c < 0x800) {
    *out += static_cast<char>(0xc0 | c >> 6);
    *out += static_cast<char>(0x80 | (c & 0x3f));
  } else if (c < 0x10000) {
    *out += static_cast<char>(0xe0 | c >> 12);
    *out += static_cast<char>(0x80 | (c >> 6 & 0x3f));
    *out += static_cast<char>(0x80 | (c & 0x3f));
  } else {
    *out += static_cast<char>(0xf0 | c >> 18);
    *out += static_cast<char>(0x80 | (c >> 12 & 0x3f));
    *out += static_cast<char>(0x80 | (c >> 6 & 0x3f));
    *out += static_cast<char>(0x80 | (c & 0x3f));
  }
}

uint32_t Number(const std::string& digits, int base) {
  return static_cast<uint32_t>(std::strtoul(digits.c_str(), nullptr, base));
}

// Reads the text between the quotes of a Python literal.
std::string ReadPython(const std::string& body) {
  std::string out;
  for (size_t at = 0; at < body.size();) {
    if (body[at] != '\\') {
      out += body[at++];
      continue;
    }
    const char kind = body[at + 1];
    const size_t digits = kind == 'x' ? 2 : kind == 'u' ? 4 : kind == 'U' ? 8 : 0;
    if (digits == 0) {
      out += kind;
    } else {
      AppendUtf8(Number(body.substr(at + 2, digits), 16), &out);
    }
    at += 2 + digits;
  }
  return out;
}

std::string ReadCpp(const std::string& body) {
  std::string out;
  for (size_t at = 0; at < body.size();) {
    if (body[at] == '\\') {
      out += static_cast<char>(Number(body.substr(at + 1, 3), 8));
      at += 4;
    } else {
      out += body[at++];
    }
  }
  return out;
}

std::string ReadPercent(const std::string& text) {
  std::string out;
  for (size_t at = 0; at < text.size();) {
    if (text[at] == '%') {
      out += static_cast<char>(Number(text.substr(at + 1, 2), 16));
      at += 3;
    } else {
      out += text[at++];
    }
  }
  return out;
}

std::string ReadReferences(std::string text) {
  for (const auto& [from, to] : std::vector<std::pair<const char*, const char*>>{
           {"&lt;", "<"}, {"&gt;", ">"}, {"&quot;", "\""}, {"&#39;", "'"}, {"&amp;", "&"}}) {
    text = Replace(text, from, to);
  }
  return text;
}

bool IsQuoted(const std::string& text) {
  if (text.size() < 2 || text.front() != '"' || text.back() != '"') return false;
  for (size_t at = 1; at + 1 < text.size(); ++at) {
    if (text[at] == '"') return false;
    if (text[at] == '\\' && ++at + 1 >= text.size()) return false;
  }
  return true;
}

std::string Inside(const std::string& quoted) { return quoted.substr(1, quoted.size() - 2); }

// Returns true if no character is acted on instead of shown.
bool IsSafe(const std::string& text, std::string_view allowed = "") {
  for (std::string_view rest = text; !rest.empty();) {
    const Utf8Char c = FirstUtf8Char(rest);
    const uint32_t p = c.code_point;
    const bool control = p < 0x20 || (p >= 0x7f && p < 0xa0);
    const bool direction = p == 0x61c || p == 0x200e || p == 0x200f ||
                           (p >= 0x2028 && p <= 0x202e) || (p >= 0x2066 && p <= 0x2069);
    if (!c.well_formed || direction) return false;
    if (control && allowed.find(rest[0]) == std::string_view::npos) return false;
    rest.remove_prefix(c.bytes.size());
  }
  return true;
}

}  // namespace

std::string BrokenEscape(std::string_view given) {
  const std::string text(given);
  const std::string shown = EscapeTerminal(text);
  if (!IsSafe(shown)) return "terminal: something acts";
  if (EscapeTerminal(shown) != shown) return "terminal: twice is not once";

  const std::string valid = ToValidUtf8(text);
  if (!IsValidUtf8(valid) || IsValidUtf8(text) != (valid == text)) return "UTF-8";
  const nlohmann::json json = {{"name", valid}};
  const std::string in_script = EscapeJsonInScript(json.dump());
  if (HasAnyOf(in_script, "<>&")) return "script: markup";
  if (nlohmann::json::parse(in_script) != json) return "script: not the same JSON";

  const std::string markup = EscapeMarkup(text);
  if (!IsSafe(markup) || HasAnyOf(markup, "<>\"'")) return "markup: something acts";
  if (ReadReferences(markup) != shown) return "markup: cannot be read back";

  const std::string data = EscapeGithubData(text), property = EscapeGithubProperty(text);
  if (!IsSafe(data) || !IsSafe(property) || HasAnyOf(property, ":,")) return "GitHub: acts";
  if (EscapeTerminal(ReadPercent(data)) != shown) return "GitHub: data cannot be read back";
  if (ReadPercent(property) != shown) return "GitHub: a property cannot be read back";

  const std::string uri = EscapeUriPath(text);
  if (!IsPrintableAscii(uri) || HasAnyOf(uri, ":?#\\ ") || uri.rfind("//", 0) == 0) return "URI";
  if (ReadPercent(text.rfind("//", 0) == 0 ? uri.substr(2) : uri) != text)
    return "URI: not the same";

  const std::string python = PythonLiteral(text), cpp = CppLiteral(text);
  if (!IsPrintableAscii(python) || !IsQuoted(python)) return "Python: no literal";
  if (ReadPython(Inside(python)) != text) return "Python: not the same text";
  if (!IsPrintableAscii(cpp) || !IsQuoted(cpp) || HasAnyOf(cpp, "?")) return "C++: no literal";
  if (ReadCpp(Inside(cpp)) != text) return "C++: not the same bytes";

  const std::string brief = Shorten(text, 64);
  if (brief.size() > 64 + 40) return "shortened: still long";
  if (IsValidUtf8(text) && !IsValidUtf8(brief)) return "shortened: within a character";
  return {};
}

}  // namespace kvlift
