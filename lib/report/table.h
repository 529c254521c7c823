// Plain-text tables: columns aligned by display width, header first.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "report/style.h"
#include "report/text_width.h"

namespace kvlift {

enum class Align { kLeft, kRight };

struct Column {
  Column(const char* column_title, Align column_align = Align::kLeft)  // NOLINT(runtime/explicit)
      : title(column_title), align(column_align) {}

  std::string title;
  Align align;
};

// What a word in a cell means: "yes" is good, "KV205" is bad.
using ToneFn = Tone (*)(std::string_view cell);

// Each row has as many cells as the header. Columns are two spaces apart and no line ends with
// spaces; cells are escaped for terminals. Cells of a table that is too wide go on in further lines
// of their row. Ends with a newline.
std::string FormatTable(const std::vector<Column>& header,
                        const std::vector<std::vector<std::string>>& rows, const Style& style = {},
                        ToneFn tone = nullptr);

}  // namespace kvlift
