// What fuzzing starts from, and the models that the replay mutates.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "fuzz/targets.h"

namespace kvlift::fuzz {

// Bytes for a target: of the text cases, of conversions of them, and of recorded regressions
// (testdata/fuzz/TARGET_*). Same order every time.
std::vector<std::string> Seeds(const Target& target);
// A file as an input of the target; ONNX text (.onnxtxt) becomes a model where it takes models.
std::string ReadInput(const Target& target, const std::string& path);
// Inputs that once broke a target: names and bytes, sorted by name.
std::vector<std::pair<std::string, std::string>> Regressions(const Target& target);

}  // namespace kvlift::fuzz
