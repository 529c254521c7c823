// Layouts of caches as text: one letter per axis, outermost axis first, or a group of letters in
// parentheses for axes that are flattened into one. "BS(ND)" is [B, S, N*D], with D varying
// fastest. S is the sequence axis.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace kvlift {

// Returns the letters of each axis: {"B", "S", "ND"} for "BS(ND)". Returns an empty list if
// parentheses are nested, unbalanced or empty. Does not check the letters.
std::vector<std::string> AxesOfLayout(std::string_view layout);
// Returns one letter per axis. A group is reduced to its last letter: "BSD" for "BS(ND)".
std::string PlainLayout(std::string_view layout);

}  // namespace kvlift
