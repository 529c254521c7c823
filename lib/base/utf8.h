// Reading UTF-8 that may be ill-formed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace kvlift {

struct Utf8Char {
  uint32_t code_point = 0;
  std::string_view bytes;  // one byte where no well-formed sequence starts
  bool well_formed = false;
};

// The first character of a text that is not empty. Overlong forms, surrogates and values above
// U+10FFFF are not well-formed.
Utf8Char FirstUtf8Char(std::string_view text);

}  // namespace kvlift
