// soundness SECONDS|PAIRSp|BASEb [SEED [FOLDER]]: see campaign.h. The campaign runs in separate
// processes of a few hundred pairs each, so that a crash is reported like any other failure.
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>

#include "fmt/format.h"
#include "soundness/campaign.h"

namespace kvlift::soundness {
namespace {

constexpr int64_t kPairs = 500;  // pairs per process

// Runs a part in a process and returns its counts; nullopt if the process crashes.
std::optional<Tally> RunApart(const Limits& limits) {
  int ends[2];
  if (pipe(ends) != 0) return std::nullopt;
  const pid_t child = fork();
  if (child < 0) return std::nullopt;
  if (child == 0) {
    close(ends[0]);
    const std::string text = soundness::Run(limits).Serialized();
    for (size_t sent = 0; sent < text.size();) {
      const ssize_t n = write(ends[1], text.data() + sent, text.size() - sent);
      if (n <= 0) break;
      sent += static_cast<size_t>(n);
    }
    _exit(0);
  }
  close(ends[1]);
  std::string text;
  char buffer[4096];
  for (ssize_t n = 0; (n = read(ends[0], buffer, sizeof buffer)) > 0;) {
    text.append(buffer, static_cast<size_t>(n));
  }
  close(ends[0]);
  int status = 0;
  waitpid(child, &status, 0);
  if (status != 0) return std::nullopt;
  return Tally::Parsed(text);
}

int RunAll(Limits limits) {
  Tally all;
  const int64_t pairs = limits.pairs;
  const double seconds = limits.seconds;
  if (limits.base) {
    all = soundness::Run(limits);
  } else {
    for (uint64_t chunk = 0; all.pairs < pairs || all.seconds < seconds; ++chunk) {
      Limits part = limits;
      part.seconds = 0;
      part.pairs = kPairs;
      part.seed = limits.seed * 1'000'000 + chunk;
      if (auto tally = RunApart(part)) {
        all.Merge(*tally);
      } else {
        // The pairs of this process are lost, and its time is unknown.
        ++all.failures["the process ends (seed of the process in front)"].count;
        fmt::print("CRASH: soundness {}p {}\n", kPairs, part.seed);
        all.seconds += 1;
      }
      if (chunk % 20 == 19) {
        fmt::print("{}", all.Summary());
        std::fflush(stdout);
      }
    }
  }
  fmt::print("{}", all.Text());
  return all.failures.empty() ? 0 : 1;
}

}  // namespace
}  // namespace kvlift::soundness

int main(int argc, char** argv) {
  const std::string much = argc > 1 ? argv[1] : "";
  char* end = nullptr;
  const double number = std::strtod(much.c_str(), &end);
  const std::string unit = end;
  if (number <= 0 || (!unit.empty() && unit != "p" && unit != "b") || argc > 4) {
    fmt::print(stderr, "usage: soundness SECONDS|PAIRSp|BASEb [SEED [FOLDER]]\n");
    return 2;
  }
  kvlift::soundness::Limits limits;
  if (unit == "p") limits.pairs = static_cast<int64_t>(number);
  if (unit.empty()) limits.seconds = number;
  if (unit == "b") limits.base = std::strtoull(much.c_str(), nullptr, 10);
  if (argc > 2) limits.seed = std::strtoull(argv[2], nullptr, 10);
  if (argc > 3) limits.folder = argv[3];
  return kvlift::soundness::RunAll(limits);
}
