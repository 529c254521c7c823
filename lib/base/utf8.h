// Reads UTF-8 that may be ill-formed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace kvlift {

struct Utf8Char {
  // 0 if the character is ill-formed.
  uint32_t code_point = 0;
  std::string_view bytes;  // one byte where no well-formed sequence starts
  bool well_formed = false;
};

// Returns the first character of a text, which must not be empty. Overlong forms, surrogates and
// values above U+10FFFF are ill-formed.
Utf8Char FirstUtf8Char(std::string_view text);

}  // namespace kvlift
