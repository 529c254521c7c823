// The corpus that fuzzing starts from, and the models that the replay mutates.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "fuzz/targets.h"

namespace kvlift::fuzz {

// Returns inputs for a target: the text cases, their conversions, and recorded regressions
// (testdata/fuzz/TARGET_*), always in the same order.
std::vector<std::string> Seeds(const Target& target);
// Reads a file as an input of the target; ONNX text (.onnxtxt) becomes a model if the target takes
// models.
std::string ReadInput(const Target& target, const std::string& path);
// Returns inputs that once broke a target: names and bytes, sorted by name.
std::vector<std::pair<std::string, std::string>> Regressions(const Target& target);

}  // namespace kvlift::fuzz
