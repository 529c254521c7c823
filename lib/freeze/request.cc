#include "freeze/request.h"

#include <algorithm>
#include <charconv>

#include "base/status.h"
#include "fmt/format.h"

namespace kvlift {
namespace {

absl::Status Wrong(std::string_view part, std::string_view why) {
  return absl::InvalidArgumentError(fmt::format("--freeze: {} in '{}'", why, part));
}

std::string_view WithoutBlanks(std::string_view text) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
  return text;
}

// Returns the texts between separators, without the blanks around them.
std::vector<std::string_view> Split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(separator, begin), text.size());
    parts.push_back(WithoutBlanks(text.substr(begin, end - begin)));
    begin = end + 1;
  }
  return parts;
}

absl::StatusOr<std::vector<int64_t>> Numbers(std::string_view part, std::string_view text) {
  std::vector<int64_t> numbers;
  for (const std::string_view word : Split(text, '|')) {
    int64_t n = 0;
    const char* end = word.data() + word.size();
    const auto [stop, error] = std::from_chars(word.data(), end, n);
    if (error != std::errc() || stop != end || n < 1) return Wrong(part, "needs a positive number");
    if (std::find(numbers.begin(), numbers.end(), n) != numbers.end()) {
      return Wrong(part, fmt::format("{} stands twice", n));
    }
    numbers.push_back(n);
  }
  return numbers;
}

}  // namespace

std::vector<FreezeSizes> FreezeRequest::Graphs() const {
  std::vector<FreezeSizes> graphs;
  for (const int64_t n : tokens) graphs.push_back({batch, n, others});
  if (graphs.empty()) graphs.push_back({batch, std::nullopt, others});
  return graphs;
}

absl::StatusOr<FreezeRequest> ReadFreeze(std::string_view text) {
  FreezeRequest request;
  for (const std::string_view part : Split(text, ',')) {
    const size_t equals = part.rfind('=');
    if (equals == std::string_view::npos || equals == 0) {
      return Wrong(part, "needs NAME=NUMBER");
    }
    const std::string name(WithoutBlanks(part.substr(0, equals)));
    KV_ASSIGN_OR_RETURN(std::vector<int64_t> numbers, Numbers(part, part.substr(equals + 1)));
    const bool known = std::any_of(request.others.begin(), request.others.end(),
                                   [&](const auto& other) { return other.first == name; });
    if (known || (name == "batch" && request.batch) ||
        (name == "tokens" && !request.tokens.empty())) {
      return Wrong(part, fmt::format("{} is assigned twice", name));
    }
    if (name == "tokens") {
      request.tokens = std::move(numbers);
    } else if (numbers.size() > 1) {
      return Wrong(part, "only tokens take several numbers");
    } else if (name == "batch") {
      request.batch = numbers.front();
    } else {
      request.others.emplace_back(name, numbers.front());
    }
  }
  return request;
}

}  // namespace kvlift
