#include "report/text/style.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>

namespace kvlift {
namespace {

std::string_view Variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? std::string_view() : std::string_view(value);
}

std::string_view Code(Tone tone) {
  switch (tone) {
    case Tone::kHeading:
      return "\x1b[1m";
    case Tone::kGood:
      return "\x1b[32m";
    case Tone::kBad:
      return "\x1b[1;31m";
    case Tone::kWarning:
      return "\x1b[33m";
    case Tone::kFaint:
      return "\x1b[2m";
    default:
      return {};
  }
}

bool IsTerminal(int fd) { return fd >= 0 && isatty(fd) != 0; }

}  // namespace

std::string Style::Paint(Tone tone, std::string_view text) const {
  const std::string_view code = Code(tone);
  if (!color || code.empty() || text.empty()) return std::string(text);
  return std::string(code) + std::string(text) + "\x1b[0m";
}

Style StyleOf(int fd, ColorChoice choice) {
  Style style;
  style.color =
      choice == ColorChoice::kAlways ||
      (choice == ColorChoice::kAuto && IsLiveTerminal(fd) && Variable("NO_COLOR").empty());
  winsize size{};
  if (IsTerminal(fd) && ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) {
    style.width = std::clamp<int>(size.ws_col, 40, 200);
  }
  return style;
}

bool IsLiveTerminal(int fd) { return IsTerminal(fd) && Variable("TERM") != "dumb"; }

}  // namespace kvlift
