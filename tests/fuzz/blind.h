// Fuzzing without coverage feedback, which any compiler can build: random changes of a corpus.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "fuzz/targets.h"

namespace kvlift::fuzz {

// The limits per input are those of tools/dev fuzz.
struct BlindOptions {
  double seconds = 30;
  uint32_t seed = 1;
  uint64_t rounds = UINT64_MAX;  // at most this many
  unsigned input_seconds = 25;
  uint64_t memory = uint64_t{2560} << 20;  // bytes; not limited under sanitizers
  std::string findings;                    // folder for inputs that break the target
};

struct BlindFinding {
  std::string what;  // how the process ended
  uint64_t round = 0;
  std::string path;  // path of the input; empty if it could not be written
};

struct BlindRun {
  uint64_t rounds = 0;
  std::optional<BlindFinding> finding;  // the first one; it ends the run
};

// Returns the input of a round: first the corpus, one by one, then changes of it. Depends on the
// arguments alone.
std::string BlindInput(const Target& target, const std::vector<std::string>& corpus, uint32_t seed,
                       uint64_t round);

// Runs the target in a process of its own, so that every way of ending it is detected.
BlindRun FuzzBlindly(const Target& target, const std::vector<std::string>& corpus,
                     const BlindOptions& options);

}  // namespace kvlift::fuzz
