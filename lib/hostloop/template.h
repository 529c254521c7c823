// The text of a loop around its facts. Internal to lib/hostloop.
#pragma once

#include <string>
#include <string_view>

namespace kvlift::internal {

// The template with what stands between the lines that contain "---- facts" and "---- end of facts"
// replaced; both lines stay out.
std::string WithFacts(std::string_view text, std::string_view facts);

}  // namespace kvlift::internal
