// How text looks on the device that it is printed to: its width and its colours.
#pragma once

#include <string>
#include <string_view>

namespace kvlift {

enum class Tone { kPlain, kHeading, kGood, kBad, kWarning, kFaint };

struct Style {
  bool color = false;
  int width = 80;  // width of the device in columns

  // Returns the text in the colours of a tone; unchanged if `color` is false. The text must be
  // escaped already.
  std::string Paint(Tone tone, std::string_view text) const;
};

enum class ColorChoice { kAuto, kAlways, kNever };

// Returns the style of a file descriptor; -1 stands for no stream. kAuto gives colours on a
// terminal that is not "dumb", unless NO_COLOR is set. Anything else than a terminal has 80
// columns.
Style StyleOf(int fd, ColorChoice choice);

// Returns true if a line of progress can be shown and erased on this file descriptor.
bool IsLiveTerminal(int fd);

}  // namespace kvlift
