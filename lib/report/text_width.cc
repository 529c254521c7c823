#include "report/text_width.h"

#include <utf8proc.h>

#include <algorithm>

#include "base/utf8.h"

namespace kvlift {
namespace {

int WidthOf(const Utf8Char& c) {
  if (!c.well_formed || c.code_point < 0x80) return 1;
  const auto code_point = static_cast<utf8proc_int32_t>(c.code_point);
  const utf8proc_property_t& is = *utf8proc_get_property(code_point);
  // Vowels and final consonants of Hangul stand in the columns of the consonant before them.
  if (is.boundclass == UTF8PROC_BOUNDCLASS_V || is.boundclass == UTF8PROC_BOUNDCLASS_T) return 0;
  // Terminals give a column to spacing marks, and utf8proc gives them none.
  return is.category == UTF8PROC_CATEGORY_MC ? 1 : utf8proc_charwidth(code_point);
}

bool IsSeparator(char c) { return std::string_view(" /._,;:+-").find(c) != std::string_view::npos; }

std::string_view Trimmed(std::string_view line) {
  while (!line.empty() && line.back() == ' ') line.remove_suffix(1);
  return line;
}

// Returns how many bytes of a text go into its first line.
size_t LineBytes(std::string_view text, int width) {
  int used = 0;
  size_t at = 0, after_space = 0, after_separator = 0;
  while (at < text.size()) {
    const Utf8Char c = FirstUtf8Char(text.substr(at));
    used += WidthOf(c);
    // A space that does not fit is dropped, so it does not count.
    if (used > width && text[at] != ' ') break;
    at += c.bytes.size();
    if (text[at - 1] == ' ') after_space = at;
    if (IsSeparator(text[at - 1])) after_separator = at;
  }
  if (at == text.size()) return at;
  // A line breaks at a space unless that leaves most of it empty.
  if (after_space * 3 > at) return after_space;
  if (after_separator > 0) return after_separator;
  return std::max(at, FirstUtf8Char(text).bytes.size());
}

}  // namespace

int DisplayWidth(std::string_view text) {
  int width = 0;
  while (!text.empty()) {
    const Utf8Char c = FirstUtf8Char(text);
    width += WidthOf(c);
    text.remove_prefix(c.bytes.size());
  }
  return width;
}

std::vector<std::string> WrapText(std::string_view text, int width) {
  std::vector<std::string> lines;
  do {
    const size_t bytes = LineBytes(text, std::max(width, 2));
    lines.emplace_back(Trimmed(text.substr(0, bytes)));
    text.remove_prefix(bytes);
  } while (!text.empty());
  return lines;
}

}  // namespace kvlift
