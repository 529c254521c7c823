#include "report/text_width.h"

#include <algorithm>

#include "base/utf8.h"
#include "report/width_tables.h"

namespace kvlift {
namespace {

bool IsIn(absl::Span<const CodeRange> ranges, char32_t c) {
  const auto it = std::upper_bound(ranges.begin(), ranges.end(), c,
                                   [](char32_t a, const CodeRange& r) { return a < r.first; });
  return it != ranges.begin() && c <= (it - 1)->last;
}

int WidthOf(const Utf8Char& c) {
  if (!c.well_formed || c.code_point < 0x300) return 1;
  if (IsIn(CombiningRanges(), c.code_point)) return 0;
  return IsIn(WideRanges(), c.code_point) ? 2 : 1;
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
