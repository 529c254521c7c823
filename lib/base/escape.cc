#include "base/escape.h"

#include <cstdint>

#include "base/utf8.h"
#include "fmt/format.h"

namespace kvlift {
namespace {

bool IsUnsafe(uint32_t c) {
  return c < 0x20 || (c >= 0x7f && c <= 0x9f) ||  // C0, DEL, C1
         c == 0x061c || c == 0x200e || c == 0x200f ||
         (c >= 0x2028 && c <= 0x202e) ||  // separators, bidirectional embeddings and overrides
         (c >= 0x2066 && c <= 0x2069) ||  // bidirectional isolates
         c == 0xfeff || (c & 0xfffe) == 0xfffe;  // byte order mark, noncharacters
}

std::string Visible(const Utf8Char& c) {
  const auto first = static_cast<uint8_t>(c.bytes[0]);
  if (!c.well_formed) return fmt::format("\\x{:02x}", first);
  if (first == '\n') return "\\n";
  if (first == '\t') return "\\t";
  if (c.bytes.size() == 1) return fmt::format("\\x{:02x}", first);
  return fmt::format("\\u{:04x}", c.code_point);
}

// Replaces unsafe characters by visible escapes. `replace` is asked first for each ASCII character:
// its result stands for the character, and null leaves the character to the default.
template <typename Replace>
std::string Escape(std::string_view text, Replace&& replace) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const Utf8Char c = FirstUtf8Char(text);
    const char* replaced = c.well_formed && c.code_point < 0x80 ? replace(text[0]) : nullptr;
    if (replaced != nullptr) {
      out += replaced;
    } else if (!c.well_formed || IsUnsafe(c.code_point)) {
      out += Visible(c);
    } else {
      out += c.bytes;
    }
    text.remove_prefix(c.bytes.size());
  }
  return out;
}

}  // namespace

std::string EscapeTerminal(std::string_view text) {
  return Escape(text, [](char) -> const char* { return nullptr; });
}

std::string ToValidUtf8(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const Utf8Char c = FirstUtf8Char(text);
    if (c.well_formed) {
      out += c.bytes;
    } else {
      out += "\xef\xbf\xbd";
    }
    text.remove_prefix(c.bytes.size());
  }
  return out;
}

bool IsValidUtf8(std::string_view text) {
  while (!text.empty()) {
    const Utf8Char c = FirstUtf8Char(text);
    if (!c.well_formed) return false;
    text.remove_prefix(c.bytes.size());
  }
  return true;
}

std::string Shorten(std::string_view text, size_t max_bytes) {
  if (text.size() <= max_bytes) return std::string(text);
  size_t kept = max_bytes;
  // A UTF-8 sequence has at most three continuation bytes.
  for (int k = 0; k < 3 && kept > 0 && (static_cast<uint8_t>(text[kept]) & 0xc0) == 0x80; ++k) {
    --kept;
  }
  return fmt::format("{}... ({} bytes more)", text.substr(0, kept), text.size() - kept);
}

std::string EscapeMarkup(std::string_view text) {
  return Escape(text, [](char c) -> const char* {
    switch (c) {
      case '&':
        return "&amp;";
      case '<':
        return "&lt;";
      case '>':
        return "&gt;";
      case '"':
        return "&quot;";
      case '\'':
        return "&#39;";
      default:
        return nullptr;
    }
  });
}

std::string EscapeJsonInScript(std::string_view json) {
  std::string out;
  out.reserve(json.size());
  while (!json.empty()) {
    const Utf8Char c = FirstUtf8Char(json);
    if (!c.well_formed) {
      out += "\\ufffd";
    } else if (c.code_point == '<' || c.code_point == '>' || c.code_point == '&' ||
               c.code_point == 0x2028 || c.code_point == 0x2029) {
      out += fmt::format("\\u{:04x}", c.code_point);
    } else {
      out += c.bytes;
    }
    json.remove_prefix(c.bytes.size());
  }
  return out;
}

std::string EscapeGithubData(std::string_view text) {
  return Escape(text, [](char c) -> const char* {
    return c == '%' ? "%25" : c == '\r' ? "%0D" : c == '\n' ? "%0A" : nullptr;
  });
}

std::string EscapeGithubProperty(std::string_view text) {
  return Escape(text, [](char c) -> const char* {
    return c == '%' ? "%25" : c == ':' ? "%3A" : c == ',' ? "%2C" : nullptr;
  });
}

std::string EscapeUriPath(std::string_view path) {
  std::string out;
  for (const char c : path) {
    const bool unreserved = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                            (c >= '0' && c <= '9') ||
                            std::string_view("-._~/").find(c) != std::string_view::npos;
    if (unreserved) {
      out += c;
    } else {
      out += fmt::format("%{:02X}", static_cast<uint8_t>(c));
    }
  }
  // "//host" would be a reference to another host.
  if (out.rfind("//", 0) == 0) out.insert(0, "/.");
  return out;
}

std::string PythonLiteral(std::string_view text) {
  std::string out = "\"";
  while (!text.empty()) {
    const Utf8Char c = FirstUtf8Char(text);
    const uint32_t code_point =
        c.well_formed ? c.code_point : 0xdc00u + static_cast<uint8_t>(text[0]);
    if (code_point == '"' || code_point == '\\') {
      out += fmt::format("\\{}", text[0]);
    } else if (code_point >= 0x20 && code_point < 0x7f) {
      out += text[0];
    } else if (code_point < 0x100) {
      out += fmt::format("\\x{:02x}", code_point);
    } else if (code_point < 0x10000) {
      out += fmt::format("\\u{:04x}", code_point);
    } else {
      out += fmt::format("\\U{:08x}", code_point);
    }
    text.remove_prefix(c.bytes.size());
  }
  return out + "\"";
}

std::string CppLiteral(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    const bool plain = c >= 0x20 && c < 0x7f && c != '"' && c != '\\' && c != '?';
    if (plain) {
      out += c;
    } else {
      // an octal escape has three digits at most
      out += fmt::format("\\{:03o}", static_cast<uint8_t>(c));
    }
  }
  return out + "\"";
}

}  // namespace kvlift
