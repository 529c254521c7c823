#include "fuzz/blind.h"

#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <new>
#include <random>

#include "base/memory_cap.h"
#include "fmt/format.h"
#include "fuzz/mutate.h"

namespace kvlift::fuzz {
namespace {

constexpr size_t kMaxBytes = 300000;  // the -max_len of tools/dev fuzz

// Shared between the process that runs the target and the one that waits for it.
struct Progress {
  std::atomic<uint64_t> round;
  std::atomic<bool> done;
};

Progress* Shared() {
  void* memory =
      mmap(nullptr, sizeof(Progress), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  Require(memory != MAP_FAILED, "no shared memory");
  return new (memory) Progress{};
}

[[noreturn]] void RunRounds(const Target& target, const std::vector<std::string>& corpus,
                            const BlindOptions& options, Progress& progress) noexcept {
  using Clock = std::chrono::steady_clock;
  const auto end = Clock::now() + std::chrono::duration<double>(options.seconds);
  const rlimit no_core = {0, 0};
  setrlimit(RLIMIT_CORE, &no_core);
  std::signal(SIGALRM, SIG_DFL);
  const MemoryCap cap(options.memory);
  for (uint64_t round = 0; round < options.rounds && Clock::now() < end; ++round) {
    progress.round = round;
    const std::string bytes = BlindInput(target, corpus, options.seed, round);
    alarm(options.input_seconds);
    target.run(bytes);
  }
  progress.done = true;
  _exit(0);
}

std::string HowItEnded(int status, unsigned input_seconds) {
  if (WIFSIGNALED(status)) {
    const int signal = WTERMSIG(status);
    if (signal == SIGALRM) return fmt::format("no end within {} s", input_seconds);
    return fmt::format("signal {} ({})", signal, strsignal(signal));
  }
  return fmt::format("exit {} before the end", WEXITSTATUS(status));
}

// FNV-1a, which is the same everywhere.
uint32_t Hash(std::string_view bytes) {
  uint32_t hash = 2166136261u;
  for (const char byte : bytes) hash = (hash ^ static_cast<unsigned char>(byte)) * 16777619u;
  return hash;
}

std::string Keep(const std::string& bytes, const std::string& folder, const std::string& name) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  const std::string path = (std::filesystem::path(folder) / name).string();
  std::ofstream file(path, std::ios::binary);
  file << bytes;
  return file.flush() ? path : "";
}

}  // namespace

std::string BlindInput(const Target& target, const std::vector<std::string>& corpus, uint32_t seed,
                       uint64_t round) {
  const std::string& from = corpus[round % corpus.size()];
  const auto turn = static_cast<uint32_t>(round / corpus.size());
  if (turn == 0) return from;
  std::seed_seq sequence{seed, Hash(from), turn};
  std::mt19937 rng(sequence);
  std::string bytes = from;
  for (size_t changes = rng() % 4 == 0 ? 1 + rng() % 6 : 1; changes > 0; --changes) {
    bytes = MutateInput(target, std::move(bytes), rng);
  }
  return bytes.size() > kMaxBytes ? from : bytes;
}

BlindRun FuzzBlindly(const Target& target, const std::vector<std::string>& corpus,
                     const BlindOptions& options) {
  Require(!corpus.empty(), "nothing to start from");
  Progress* const progress = Shared();
  const pid_t child = fork();
  Require(child >= 0, "no process to run the target in");
  if (child == 0) RunRounds(target, corpus, options, *progress);
  int status = 0;
  while (waitpid(child, &status, 0) < 0) Require(errno == EINTR, "lost the process of the target");
  const uint64_t round = progress->round;
  const bool done = progress->done;
  munmap(progress, sizeof(Progress));
  BlindRun run;
  run.rounds = round + 1;
  if (done) return run;
  const std::string name = fmt::format("{}-seed-{}-round-{}", target.name, options.seed, round);
  run.finding =
      BlindFinding{HowItEnded(status, options.input_seconds), round,
                   Keep(BlindInput(target, corpus, options.seed, round), options.findings, name)};
  return run;
}

}  // namespace kvlift::fuzz
