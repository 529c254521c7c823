#include "base/utf8.h"

#include <utf8proc.h>

namespace kvlift {

Utf8Char FirstUtf8Char(std::string_view text) {
  utf8proc_int32_t code_point = 0;
  const utf8proc_ssize_t length =
      utf8proc_iterate(reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
                       static_cast<utf8proc_ssize_t>(text.size()), &code_point);
  if (length <= 0) return {0, text.substr(0, 1), false};
  return {static_cast<uint32_t>(code_point), text.substr(0, static_cast<size_t>(length)), true};
}

}  // namespace kvlift
