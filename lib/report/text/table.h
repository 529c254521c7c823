// Plain-text tables: columns aligned by display width, header first.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "report/text/style.h"
#include "report/text/text_width.h"

namespace kvlift {

enum class Align { kLeft, kRight };

struct Column {
  Column(const char* column_title,
         Align column_align = Align::kLeft)  // NOLINT(google-explicit-constructor)
      : title(column_title), align(column_align) {}

  std::string title;
  Align align;
};

// Returns the tone of a cell by its text: "yes" is good, "KV205" is bad.
using ToneFn = Tone (*)(std::string_view cell);

// Returns a table as text that ends with a newline. Columns are two spaces apart, and no line ends
// with spaces. Cells are escaped for terminals and cut at 256 bytes; missing cells are empty. If
// the table is wider than the style allows, cells are wrapped within their row. A null `tone` gives
// plain cells.
std::string FormatTable(const std::vector<Column>& header,
                        const std::vector<std::vector<std::string>>& rows, const Style& style = {},
                        ToneFn tone = nullptr);

}  // namespace kvlift
