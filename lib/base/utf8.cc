#include "base/utf8.h"

namespace kvlift {

Utf8Char FirstUtf8Char(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
  const Utf8Char ill_formed = {0, text.substr(0, 1), false};
  const uint8_t lead = byte(0);
  if (lead < 0x80) return {lead, text.substr(0, 1), true};
  size_t length = 0;
  if (lead >= 0xc2 && lead <= 0xdf) {
    length = 2;
  } else if ((lead & 0xf0) == 0xe0) {
    length = 3;
  } else if (lead >= 0xf0 && lead <= 0xf4) {
    length = 4;
  }
  if (length == 0 || text.size() < length) return ill_formed;
  uint32_t code_point = lead & (0xffu >> (length + 1));
  for (size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return ill_formed;
    code_point = (code_point << 6) | (byte(i) & 0x3fu);
  }
  constexpr uint32_t kSmallest[] = {0, 0, 0x80, 0x800, 0x10000};
  const bool surrogate = code_point >= 0xd800 && code_point <= 0xdfff;
  if (code_point < kSmallest[length] || code_point > 0x10ffff || surrogate) return ill_formed;
  return {code_point, text.substr(0, length), true};
}

}  // namespace kvlift
