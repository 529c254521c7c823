#include "base/quote_yaml.h"

#include <cstdint>

#include "base/utf8.h"
#include "fmt/format.h"

namespace kvlift {
namespace {

std::string Escaped(uint32_t c) {
  if (c == '"') return "\\\"";
  if (c == '\\') return "\\\\";
  if (c == '\n') return "\\n";
  if (c == '\t') return "\\t";
  if (c < 0x100) return fmt::format("\\x{:02x}", c);
  return c < 0x10000 ? fmt::format("\\u{:04x}", c) : fmt::format("\\U{:08x}", c);
}

}  // namespace

std::string QuoteYaml(std::string_view text) {
  constexpr uint32_t kReplacement = 0xfffd;
  std::string out = "\"";
  while (!text.empty()) {
    const Utf8Char c = FirstUtf8Char(text);
    const uint32_t code = c.well_formed ? c.code_point : kReplacement;
    const bool plain = code >= 0x20 && code < 0x7f && code != '"' && code != '\\';
    out += plain ? std::string(c.bytes) : Escaped(code);
    text.remove_prefix(c.bytes.size());
  }
  return out + "\"";
}

}  // namespace kvlift
