// What every escape function promises, for any text: nothing that its sink would act on is left,
// and what was escaped can be read back.
#pragma once

#include <string>
#include <string_view>

namespace kvlift {

// Empty, or the promise that is broken.
std::string BrokenEscape(std::string_view text);

}  // namespace kvlift
