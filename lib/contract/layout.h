// Layouts of caches: one letter per axis, or a group of letters. "BS(ND)" is [B, S, N*D], D
// fastest.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace kvlift {

// The letters of each axis: {"B", "S", "ND"}. Empty if the text is no layout.
std::vector<std::string> AxesOfLayout(std::string_view layout);
// One letter per axis, of a group the last: "BSD".
std::string PlainLayout(std::string_view layout);

}  // namespace kvlift
