// Puts the facts of a model into the text of a loop. Internal to lib/hostloop.
#pragma once

#include <string>
#include <string_view>

namespace kvlift::internal {

// Returns `text` with everything from the line that contains "---- facts" to the line that contains
// "---- end of facts", both included, replaced by `facts`. The text must contain both lines.
std::string WithFacts(std::string_view text, std::string_view facts);

}  // namespace kvlift::internal
