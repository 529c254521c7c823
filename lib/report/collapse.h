// Layers that are alike told once: names that differ only in numbers become one.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace kvlift {

// 0, 1, 2, 5 as "0-2,5". Sorted and without repetitions.
std::string Ranges(std::vector<uint64_t> numbers);

// The name with its numbers taken out: equal for names that differ only in them.
std::string NamePattern(const std::string& name);

enum class Numbers { kStar, kRanges, kBareRanges };  // "k.*.key", "k.{0-31}.key", "k.0-31.key"

// One name for names of one pattern. Numbers that are equal in all stay as they are.
std::string MergedName(const std::vector<std::string>& names, Numbers numbers);

struct NameColumn {
  size_t column;
  Numbers numbers;
};

// Rows that are equal but for numbers in the cells of name columns become one, where the first of
// them stood.
std::vector<std::vector<std::string>> CollapseRows(std::vector<std::vector<std::string>> rows,
                                                   const std::vector<NameColumn>& name_columns);

}  // namespace kvlift
