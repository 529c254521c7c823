// What fuzzing starts from, and the models that the replay mutates.
#pragma once

#include <string>
#include <vector>

#include "fuzz/targets.h"

namespace kvlift::fuzz {

// Bytes for a target: of the text cases, of conversions of them, and of recorded regressions
// (testdata/fuzz/TARGET_*). Same order every time.
std::vector<std::string> Seeds(const Target& target);
// Inputs that once broke a target: names and bytes, sorted by name.
std::vector<std::pair<std::string, std::string>> Regressions(const Target& target);

}  // namespace kvlift::fuzz
