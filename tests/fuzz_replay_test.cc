// LIBS: fuzz
// The fuzz targets on fixed inputs: what broke one of them, and changes of the text cases drawn
// with fixed seeds. A promise that is broken ends the process.
#include <cstdlib>
#include <random>
#include <string>

#include "fuzz/mutate.h"
#include "fuzz/seeds.h"
#include "fuzz/targets.h"
#include "gtest/gtest.h"

namespace kvlift::fuzz {
namespace {

// KVLIFT_FUZZ_ROUNDS asks for more than a run of all tests has time for, KVLIFT_FUZZ_SEED for
// others.
unsigned FromEnvironment(const char* name, unsigned fallback) {
  const char* text = std::getenv(name);
  return text == nullptr ? fallback : static_cast<unsigned>(std::strtoul(text, nullptr, 10));
}

class Replay : public ::testing::TestWithParam<std::string> {};

TEST_P(Replay, RegressionsHold) {
  const Target& target = *FindTarget(GetParam());
  for (const auto& [name, bytes] : Regressions(target)) {
    SCOPED_TRACE(name);
    target.run(bytes);
  }
}

TEST_P(Replay, ChangedCasesHold) {
  const Target& target = *FindTarget(GetParam());
  const std::vector<std::string> seeds = Seeds(target);
  ASSERT_FALSE(seeds.empty());
  const unsigned rounds = FromEnvironment("KVLIFT_FUZZ_ROUNDS", 300);
  const unsigned first = FromEnvironment("KVLIFT_FUZZ_SEED", 1);
  for (unsigned round = 0; round < rounds; ++round) {
    std::mt19937 rng(first + round);
    std::string bytes = seeds[rng() % seeds.size()];
    bytes = MutateInput(target, bytes, rng);
    if (const char* kept = std::getenv("KVLIFT_FUZZ_KEEP")) {  // the last one is what broke it
      std::FILE* file = std::fopen(kept, "wb");
      ASSERT_NE(file, nullptr);
      std::fwrite(bytes.data(), 1, bytes.size(), file);
      std::fclose(file);
    }
    target.run(bytes);
  }
}

std::vector<std::string> Names() {
  std::vector<std::string> names;
  for (const Target& target : Targets()) names.emplace_back(target.name);
  return names;
}

INSTANTIATE_TEST_SUITE_P(Targets, Replay, ::testing::ValuesIn(Names()),
                         [](const auto& target) { return target.param; });

}  // namespace
}  // namespace kvlift::fuzz
