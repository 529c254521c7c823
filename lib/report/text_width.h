// Text measured and broken by the columns that a terminal shows it in.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace kvlift {

// Wide East Asian characters count twice, combining ones not at all. The text must be escaped
// already.
int DisplayWidth(std::string_view text);

// Lines of at most `width` columns (at least 2), broken behind spaces or, in names, behind
// separators where it can be; spaces at a break are dropped. At least one line.
std::vector<std::string> WrapText(std::string_view text, int width);

}  // namespace kvlift
