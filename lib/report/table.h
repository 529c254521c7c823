// Plain-text tables: columns aligned by display width, header first.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace kvlift {

// Columns that a terminal shows the text in: wide East Asian characters count twice, combining
// ones not at all. The text must be escaped already.
int DisplayWidth(std::string_view text);

// Each row has as many cells as the header. Columns are two spaces apart, the last one is not
// padded; cells are escaped for terminals. Ends with a newline.
std::string FormatTable(const std::vector<std::string>& header,
                        const std::vector<std::vector<std::string>>& rows);

}  // namespace kvlift
