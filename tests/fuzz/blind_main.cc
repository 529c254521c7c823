// fuzz_blind TARGET SECONDS FOLDER [SEED [ROUNDS]]: changes the corpus for SECONDS or ROUNDS, and
// writes inputs that break the target to the folder. The environment variable KVLIFT_FUZZ_SECONDS
// overrides SECONDS. fuzz_blind TARGET FILE: runs that input once.
#include <cstdio>
#include <cstdlib>
#include <string>

#include "fmt/format.h"
#include "fuzz/blind.h"
#include "fuzz/seeds.h"

namespace kvlift::fuzz {
namespace {

int RunFor(const Target& target, const BlindOptions& options) {
  fmt::print("target {}, seed {}, {} s\n", target.name, options.seed, options.seconds);
  std::fflush(stdout);
  std::vector<std::string> corpus;
  for (auto& [name, bytes] : Regressions(target)) corpus.push_back(std::move(bytes));
  for (std::string& bytes : Seeds(target)) corpus.push_back(std::move(bytes));
  const BlindRun run = FuzzBlindly(target, corpus, options);
  fmt::print("{} inputs, {} of them the corpus itself\n", run.rounds, corpus.size());
  if (!run.finding) return 0;
  fmt::print("BROKEN: {}, in round {} of seed {}\n", run.finding->what, run.finding->round,
             options.seed);
  fmt::print("the input: {}\n", run.finding->path.empty() ? "not written" : run.finding->path);
  fmt::print("once more: fuzz_blind {} {}\n", target.name, run.finding->path);
  return 1;
}

int Main(int argc, char** argv) {
  const Target* target = argc >= 3 ? FindTarget(argv[1]) : nullptr;
  if (target == nullptr || argc > 6) {
    fmt::print(
        stderr,
        "usage: fuzz_blind TARGET SECONDS FOLDER [SEED [ROUNDS]], or fuzz_blind TARGET FILE\n");
    return 2;
  }
  if (argc == 3) {
    target->run(ReadInput(*target, argv[2]));
    return 0;
  }
  BlindOptions options;
  const char* asked = std::getenv("KVLIFT_FUZZ_SECONDS");
  options.seconds = std::atof(asked != nullptr ? asked : argv[2]);
  options.findings = argv[3];
  if (argc == 6) options.rounds = std::strtoull(argv[5], nullptr, 10);
  if (argc >= 5) options.seed = static_cast<uint32_t>(std::strtoul(argv[4], nullptr, 10));
  return RunFor(*target, options);
}

}  // namespace
}  // namespace kvlift::fuzz

int main(int argc, char** argv) { return kvlift::fuzz::Main(argc, argv); }
