#include "base/escape.h"

#include <cstdint>

#include "fmt/format.h"

namespace kvlift {
namespace {

struct Decoded {
  uint32_t code_point;
  size_t length;  // 0: no well-formed sequence starts here
};

// Overlong forms, surrogates and values above U+10FFFF are not well-formed.
Decoded DecodeUtf8(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
  const uint8_t lead = byte(0);
  if (lead < 0x80) return {lead, 1};
  size_t length = 0;
  if (lead >= 0xc2 && lead <= 0xdf) {
    length = 2;
  } else if ((lead & 0xf0) == 0xe0) {
    length = 3;
  } else if (lead >= 0xf0 && lead <= 0xf4) {
    length = 4;
  }
  if (length == 0 || text.size() < length) return {0, 0};
  uint32_t code_point = lead & (0xffu >> (length + 1));
  for (size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return {0, 0};
    code_point = (code_point << 6) | (byte(i) & 0x3fu);
  }
  constexpr uint32_t kSmallest[] = {0, 0, 0x80, 0x800, 0x10000};
  const bool surrogate = code_point >= 0xd800 && code_point <= 0xdfff;
  if (code_point < kSmallest[length] || code_point > 0x10ffff || surrogate) return {0, 0};
  return {code_point, length};
}

bool IsUnsafe(uint32_t c) {
  return c < 0x20 || (c >= 0x7f && c <= 0x9f) ||  // C0, DEL, C1
         c == 0x061c || c == 0x200e || c == 0x200f ||
         (c >= 0x2028 && c <= 0x202e) ||  // separators, bidirectional embeddings and overrides
         (c >= 0x2066 && c <= 0x2069);    // bidirectional isolates
}

}  // namespace

std::string EscapeTerminal(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const Decoded decoded = DecodeUtf8(text);
    const size_t length = decoded.length == 0 ? 1 : decoded.length;
    const auto first = static_cast<uint8_t>(text[0]);
    if (decoded.length == 0) {
      out += fmt::format("\\x{:02x}", first);
    } else if (!IsUnsafe(decoded.code_point)) {
      out += text.substr(0, length);
    } else if (first == '\n') {
      out += "\\n";
    } else if (first == '\t') {
      out += "\\t";
    } else if (length == 1) {
      out += fmt::format("\\x{:02x}", first);
    } else {
      out += fmt::format("\\u{:04x}", decoded.code_point);
    }
    text.remove_prefix(length);
  }
  return out;
}

std::string ToValidUtf8(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const size_t length = DecodeUtf8(text).length;
    if (length == 0) {
      out += "\xef\xbf\xbd";
      text.remove_prefix(1);
    } else {
      out += text.substr(0, length);
      text.remove_prefix(length);
    }
  }
  return out;
}

}  // namespace kvlift
