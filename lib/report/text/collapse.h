// Merges the table rows of layers that are alike: names that differ only in their numbers become
// one name.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace kvlift {

// Returns numbers as ranges: 0, 1, 2, 5 as "0-2,5". The numbers need not be sorted or distinct.
std::string Ranges(std::vector<uint64_t> numbers);

// Returns a pattern that is equal for names that differ only in their numbers, and for no others.
std::string NamePattern(const std::string& name);

// How MergedName shows numbers that differ: "k.*.key", "k.{0-31}.key", "k.0-31.key".
enum class Numbers { kStar, kRanges, kBareRanges };

// Returns one name for names that have the same NamePattern. Numbers that are equal in all of them
// stay as they are. Returns an empty string for an empty list.
std::string MergedName(const std::vector<std::string>& names, Numbers numbers);

// A column of a table whose cells are names.
struct NameColumn {
  size_t column;
  Numbers numbers;
};

// Merges rows that are equal except for numbers in the cells of name columns. A merged row stands
// where the first of its rows stood.
std::vector<std::vector<std::string>> CollapseRows(std::vector<std::vector<std::string>> rows,
                                                   const std::vector<NameColumn>& name_columns);

}  // namespace kvlift
