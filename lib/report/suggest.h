// "Did you mean": the closest of some words.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace kvlift {

// Insertions, deletions, replacements and swaps of neighbours.
int EditDistance(std::string_view a, std::string_view b);
// Empty if none is close enough (a third of the word's length, at least 2).
std::string ClosestWord(std::string_view word, const std::vector<std::string>& known);

}  // namespace kvlift
