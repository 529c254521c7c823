#include "onnxio/files/guard.h"

#include <exception>
#include <new>

#include "base/escape.h"
#include "fmt/format.h"

namespace kvlift {
namespace {

constexpr int kMaxLines = 4;
constexpr size_t kMaxBytes = 2000;

}  // namespace

std::string FirstLines(std::string_view message) {
  std::string out;
  for (int lines = 0; lines < kMaxLines && !message.empty();) {
    const size_t end = message.find('\n');
    std::string_view line = message.substr(0, end);
    message.remove_prefix(end == std::string_view::npos ? message.size() : end + 1);
    const size_t first = line.find_first_not_of(" \t\r");
    if (first == std::string_view::npos) continue;
    line = line.substr(first, line.find_last_not_of(" \t\r") - first + 1);
    if (!out.empty()) out += "; ";
    out += EscapeTerminal(line.substr(0, kMaxBytes));
    ++lines;
  }
  return out;
}

absl::Status StatusOfCurrentException(std::string_view what) {
  try {
    throw;
  } catch (const std::bad_alloc&) {
    return absl::ResourceExhaustedError(fmt::format("{}: out of memory", what));
  } catch (const std::exception& error) {
    return absl::InvalidArgumentError(fmt::format("{}: {}", what, FirstLines(error.what())));
  } catch (...) {
    return absl::InvalidArgumentError(fmt::format("{}: an unknown error", what));
  }
}

}  // namespace kvlift
