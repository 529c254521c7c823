// How text looks where it is printed: its width and its colours.
#pragma once

#include <string>
#include <string_view>

namespace kvlift {

enum class Tone { kPlain, kHeading, kGood, kBad, kWarning, kFaint };

struct Style {
  bool color = false;
  int width = 80;  // columns

  // The text, which is escaped already, in the colours of a tone.
  std::string Paint(Tone tone, std::string_view text) const;
};

enum class ColorChoice { kAuto, kAlways, kNever };

// Of a stream with this file descriptor, or of none (-1). Auto means a terminal that is not dumb,
// without NO_COLOR; other things than terminals have 80 columns.
Style StyleOf(int fd, ColorChoice choice);

// Whether a line of progress can be written over there.
bool IsLiveTerminal(int fd);

}  // namespace kvlift
