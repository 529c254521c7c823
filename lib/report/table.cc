#include "report/table.h"

#include <algorithm>
#include <cstdint>

#include "base/escape.h"

namespace kvlift {
namespace {

// Names may be of any length, and the widest cell of a column widens all others.
constexpr size_t kMaxCellBytes = 256;

// The code point at `at`, which is moved behind it. The text is valid UTF-8.
char32_t NextCodePoint(std::string_view text, size_t* at) {
  const auto byte = static_cast<unsigned char>(text[*at]);
  const int extra = byte >= 0xf0 ? 3 : byte >= 0xe0 ? 2 : byte >= 0xc0 ? 1 : 0;
  char32_t c = extra == 0 ? byte : byte & (0x3fu >> extra);
  for (int k = 1; k <= extra && *at + k < text.size(); ++k) {
    c = c << 6 | (static_cast<unsigned char>(text[*at + k]) & 0x3fu);
  }
  *at += extra + 1;
  return c;
}

bool InRange(char32_t c, char32_t low, char32_t high) { return c >= low && c <= high; }

// Source: Unicode East Asian Width, classes W and F, in whole blocks.
bool IsWide(char32_t c) {
  return InRange(c, 0x1100, 0x115f) || InRange(c, 0x2e80, 0xa4cf) || InRange(c, 0xac00, 0xd7a3) ||
         InRange(c, 0xf900, 0xfaff) || InRange(c, 0xfe30, 0xfe6f) || InRange(c, 0xff00, 0xff60) ||
         InRange(c, 0xffe0, 0xffe6) || InRange(c, 0x1f300, 0x1f64f) ||
         InRange(c, 0x1f900, 0x1f9ff) || InRange(c, 0x20000, 0x3fffd);
}

bool IsCombining(char32_t c) {
  return InRange(c, 0x0300, 0x036f) || InRange(c, 0x1ab0, 0x1aff) || InRange(c, 0x20d0, 0x20ff) ||
         InRange(c, 0xfe00, 0xfe0f) || InRange(c, 0x200b, 0x200d);
}

}  // namespace

int DisplayWidth(std::string_view text) {
  int width = 0;
  for (size_t at = 0; at < text.size();) {
    const char32_t c = NextCodePoint(text, &at);
    if (!IsCombining(c)) width += IsWide(c) ? 2 : 1;
  }
  return width;
}

std::string FormatTable(const std::vector<std::string>& header,
                        const std::vector<std::vector<std::string>>& rows) {
  std::vector<std::vector<std::string>> lines = {header};
  for (const auto& row : rows) {
    lines.emplace_back();
    for (const std::string& cell : row)
      lines.back().push_back(Shorten(EscapeTerminal(cell), kMaxCellBytes));
  }
  std::vector<int> widths(header.size(), 0);
  for (const auto& line : lines) {
    for (size_t k = 0; k < line.size() && k < widths.size(); ++k) {
      widths[k] = std::max(widths[k], DisplayWidth(line[k]));
    }
  }
  std::string text;
  for (const auto& line : lines) {
    for (size_t k = 0; k < line.size(); ++k) {
      text += line[k];
      if (k + 1 < line.size()) {
        const int gap = widths[k] - DisplayWidth(line[k]) + 2;
        text.append(static_cast<size_t>(gap), ' ');
      }
    }
    text += '\n';
  }
  return text;
}

}  // namespace kvlift
