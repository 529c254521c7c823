#include "support/case_edits.h"

#include <algorithm>
#include <sstream>
#include <utility>
#include <vector>

#include "base/status.h"
#include "fmt/format.h"

namespace kvlift {
namespace {

using Lines = std::vector<std::string>;

struct Hunk {
  std::string first_line;  // as it is written, for errors
  Lines before, after;     // the lines of its place, and those that stand there afterwards
};

absl::Status Broken(const Hunk& hunk, std::string_view what) {
  return absl::InvalidArgumentError(fmt::format("edit \"{}\" {}", hunk.first_line, what));
}

Lines SplitLines(const std::string& text) {
  Lines lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

absl::StatusOr<std::vector<Hunk>> ReadHunks(const std::string& edits) {
  std::vector<Hunk> hunks;
  bool inside = false;
  for (const std::string& line : SplitLines(edits)) {
    if (line.empty()) {
      inside = false;
      continue;
    }
    if (!std::exchange(inside, true)) hunks.push_back({line, {}, {}});
    Hunk& hunk = hunks.back();
    if (line[0] != ' ' && line[0] != '-' && line[0] != '+') {
      return Broken(hunk, fmt::format("has a line without ' ', '-' or '+' in front: {}", line));
    }
    if (line[0] != '+') hunk.before.push_back(line.substr(1));
    if (line[0] != '-') hunk.after.push_back(line.substr(1));
  }
  return hunks;
}

// Returns the only index of `text` at which the hunk's lines stand.
absl::StatusOr<size_t> FindPlace(const Lines& text, const Hunk& hunk) {
  if (hunk.before.empty()) return Broken(hunk, "has no line that says where it is");
  if (hunk.before == hunk.after) return Broken(hunk, "changes nothing");
  const auto find = [&](auto from) {
    return std::search(from, text.end(), hunk.before.begin(), hunk.before.end());
  };
  const auto place = find(text.begin());
  if (place == text.end()) return Broken(hunk, "has no place in the base");
  if (find(place + 1) != text.end()) return Broken(hunk, "has several places in the base");
  return static_cast<size_t>(place - text.begin());
}

}  // namespace

absl::StatusOr<std::string> ApplyEdits(const std::string& text, const std::string& edits) {
  KV_ASSIGN_OR_RETURN(const std::vector<Hunk> hunks, ReadHunks(edits));
  if (hunks.empty()) return absl::InvalidArgumentError("there are no edits");
  const Lines lines = SplitLines(text);
  Lines result;
  size_t done = 0;
  for (const Hunk& hunk : hunks) {
    KV_ASSIGN_OR_RETURN(const size_t place, FindPlace(lines, hunk));
    if (place < done) return Broken(hunk, "is not behind the one before it");
    result.insert(result.end(), lines.begin() + done, lines.begin() + place);
    result.insert(result.end(), hunk.after.begin(), hunk.after.end());
    done = place + hunk.before.size();
  }
  result.insert(result.end(), lines.begin() + done, lines.end());
  std::string joined;
  for (const std::string& line : result) joined += line + "\n";
  return joined;
}

}  // namespace kvlift
