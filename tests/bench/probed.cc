#include "probed.h"

#include <algorithm>
#include <chrono>

#include "exec/kernels/common/probe.h"
#include "exec/memory/team.h"

namespace kvlift::exec::bench {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kRounds = 20;
constexpr double kShortest = 2e-3;  // seconds of one round; shorter kernels run several times

double Seconds(absl::FunctionRef<void()> body) {
  const auto start = Clock::now();
  body();
  return std::max(std::chrono::duration<double>(Clock::now() - start).count(), 1e-9);
}

}  // namespace

void RunProbed(benchmark::State& state, Limit limit, int threads, double amount,
               absl::FunctionRef<void()> body) {
  int repeats = 1;
  double best_rate = 0, best_probe = 0;
  RunWithTeam(threads, [&] { repeats = 1 + static_cast<int>(kShortest / Seconds(body)); });
  for (auto _ : state) {
    const double probe = limit == Limit::kFma ? ProbeFmaGflops(threads) : ProbeReadGbs(threads);
    double seconds = 0;
    RunWithTeam(threads, [&] {
      body();  // the team is awake from here on
      seconds = Seconds([&] {
                  for (int i = 0; i < repeats; ++i) body();
                }) /
                repeats;
    });
    state.SetIterationTime(seconds);
    best_probe = std::max(best_probe, probe);
    best_rate = std::max(best_rate, amount / seconds * 1e-9);
  }
  state.counters["rate"] = best_rate;
  state.counters["probe"] = best_probe;
  state.counters[limit == Limit::kFma ? "of_fma" : "of_read"] = best_rate / best_probe;
}

void Rounds(benchmark::internal::Benchmark* b) {
  b->Iterations(kRounds)->UseManualTime()->Unit(benchmark::kMicrosecond);
}

}  // namespace kvlift::exec::bench
