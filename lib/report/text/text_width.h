// Measures and wraps text by the columns that it takes on a terminal.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace kvlift {

// Returns the number of columns of a text. Wide East Asian characters count as two, combining
// characters as none. The text must be escaped already.
int DisplayWidth(std::string_view text);

// Returns the lines of a text, at least one, with at most `width` columns each (2 if `width` is
// less). Lines break after spaces or, in names, after separators where possible. Spaces at a break
// are dropped.
std::vector<std::string> WrapText(std::string_view text, int width);

}  // namespace kvlift
