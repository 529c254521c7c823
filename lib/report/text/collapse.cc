#include "report/text/collapse.h"

#include <algorithm>
#include <map>

#include "fmt/format.h"

namespace kvlift {
namespace {

bool IsDigit(char c) { return c >= '0' && c <= '9'; }

// Splits a name into texts and numbers in turn: "a12b3" into {"a", "12", "b", "3", ""}. Numbers
// with a leading zero or with more than 18 digits count as text.
std::vector<std::string> Parts(const std::string& name) {
  constexpr size_t kMaxDigits = 18;
  std::vector<std::string> parts = {""};
  for (size_t at = 0; at < name.size();) {
    size_t end = at;
    while (end < name.size() && IsDigit(name[end])) ++end;
    if (end == at) {
      parts.back() += name[at++];
      continue;
    }
    const std::string digits = name.substr(at, end - at);
    if (digits.size() > kMaxDigits || (digits.size() > 1 && digits[0] == '0')) {
      parts.back() += digits;
    } else {
      parts.push_back(digits);
      parts.emplace_back();
    }
    at = end;
  }
  return parts;
}

}  // namespace

std::string Ranges(std::vector<uint64_t> numbers) {
  std::sort(numbers.begin(), numbers.end());
  numbers.erase(std::unique(numbers.begin(), numbers.end()), numbers.end());
  std::string text;
  for (size_t k = 0; k < numbers.size();) {
    size_t last = k;
    while (last + 1 < numbers.size() && numbers[last + 1] == numbers[last] + 1) ++last;
    if (!text.empty()) text += ",";
    text +=
        last == k ? fmt::format("{}", numbers[k]) : fmt::format("{}-{}", numbers[k], numbers[last]);
    k = last + 1;
  }
  return text;
}

std::string NamePattern(const std::string& name) {
  // '#' stands for a number and "\#" for a '#' of the name, so that different names cannot collide.
  std::string pattern;
  const std::vector<std::string> parts = Parts(name);
  for (size_t k = 0; k < parts.size(); ++k) {
    if (k % 2 == 1) {
      pattern += '#';
      continue;
    }
    for (const char c : parts[k]) {
      if (c == '#' || c == '\\') pattern += '\\';
      pattern += c;
    }
  }
  return pattern;
}

std::string MergedName(const std::vector<std::string>& names, Numbers numbers) {
  if (names.empty()) return {};
  std::vector<std::vector<uint64_t>> values(Parts(names[0]).size());
  for (const std::string& name : names) {
    const std::vector<std::string> parts = Parts(name);
    for (size_t k = 1; k < parts.size(); k += 2) values[k].push_back(std::stoull(parts[k]));
  }
  const std::vector<std::string> parts = Parts(names[0]);
  std::string merged;
  for (size_t k = 0; k < parts.size(); ++k) {
    const bool varies = std::any_of(values[k].begin(), values[k].end(),
                                    [&](uint64_t n) { return n != values[k].front(); });
    merged += !varies                       ? parts[k]
              : numbers == Numbers::kStar   ? "*"
              : numbers == Numbers::kRanges ? "{" + Ranges(values[k]) + "}"
                                            : Ranges(values[k]);
  }
  return merged;
}

std::vector<std::vector<std::string>> CollapseRows(std::vector<std::vector<std::string>> rows,
                                                   const std::vector<NameColumn>& name_columns) {
  using Row = std::vector<std::string>;
  std::map<Row, size_t> places;
  std::vector<std::vector<Row>> groups;
  for (Row& row : rows) {
    Row key = row;
    for (const NameColumn& c : name_columns) key[c.column] = NamePattern(key[c.column]);
    const auto [it, added] = places.try_emplace(std::move(key), groups.size());
    if (added) groups.emplace_back();
    groups[it->second].push_back(std::move(row));
  }
  std::vector<Row> collapsed;
  for (const std::vector<Row>& group : groups) {
    collapsed.push_back(group[0]);
    for (const NameColumn& c : name_columns) {
      std::vector<std::string> names;
      for (const Row& row : group) names.push_back(row[c.column]);
      collapsed.back()[c.column] = MergedName(names, c.numbers);
    }
  }
  return collapsed;
}

}  // namespace kvlift
