// A finding about a model, for the output formats that other programs read.
#pragma once

#include <string>
#include <vector>

#include "base/findings.h"

namespace kvlift {

enum class Level { kError, kWarning, kNote };

struct Diagnostic {
  Level level = Level::kError;
  std::string path;  // path of the model
  Finding finding;
};

// Returns "KV121: TEXT (at NODE and 2 more)". The code or the nodes are left out if there are none.
// The result is not escaped.
std::string OneLine(const Finding& finding);

}  // namespace kvlift
