// The promises of all escape functions, for any text: nothing is left that the target (terminal,
// HTML, script) would act on, and the text can be recovered.
#pragma once

#include <string>
#include <string_view>

namespace kvlift {

// Returns the promise that is broken, or an empty string.
std::string BrokenEscape(std::string_view text);

}  // namespace kvlift
