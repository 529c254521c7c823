// What a command found in a model, for the formats that other programs read.
#pragma once

#include <string>
#include <vector>

#include "base/findings.h"

namespace kvlift {

enum class Level { kError, kWarning, kNote };

struct Diagnostic {
  Level level = Level::kError;
  std::string path;  // of the model
  Finding finding;
};

// "KV121: TEXT (at NODE and 2 more)"; the code is left out if there is none. Not escaped.
std::string OneLine(const Finding& finding);

}  // namespace kvlift
