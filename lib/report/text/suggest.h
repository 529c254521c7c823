// Finds the word that a user may have meant.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace kvlift {

// Returns the number of insertions, deletions, replacements and swaps of neighbouring bytes that
// turn a into b (the optimal string alignment distance).
int EditDistance(std::string_view a, std::string_view b);
// Returns the known word that is closest to `word`; empty if all of them are farther away than a
// third of its length (at least 2).
std::string ClosestWord(std::string_view word, const std::vector<std::string>& known);

}  // namespace kvlift
