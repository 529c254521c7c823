// Fuzzing that any compiler builds: changes of a corpus, drawn without seeing what they reach.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "fuzz/targets.h"

namespace kvlift::fuzz {

// What one input may cost is what tools/dev fuzz allows.
struct BlindOptions {
  double seconds = 30;
  uint32_t seed = 1;
  uint64_t rounds = UINT64_MAX;  // no more than these
  unsigned input_seconds = 25;
  uint64_t memory = uint64_t{2560} << 20;  // not limited under sanitizers
  std::string findings;                    // folder for inputs that break the target
};

struct BlindFinding {
  std::string what;  // how the process ended
  uint64_t round = 0;
  std::string path;  // of the input; empty if it could not be written
};

struct BlindRun {
  uint64_t rounds = 0;
  std::optional<BlindFinding> finding;  // the first one; it ends the run
};

// A function of its arguments: the corpus itself, one by one, then changes of it.
std::string BlindInput(const Target& target, const std::vector<std::string>& corpus, uint32_t seed,
                       uint64_t round);

// Runs the target in a process of its own, so that no way to end it is missed.
BlindRun FuzzBlindly(const Target& target, const std::vector<std::string>& corpus,
                     const BlindOptions& options);

}  // namespace kvlift::fuzz
