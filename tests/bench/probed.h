// Micro-benchmarks as fractions of what the machine can do. Each round times a probe and then the
// kernel, so that both meet the same machine; the best round of each counts.
//
//   BENCHMARK(...)->Apply(Rounds): one iteration is one round.
#pragma once

#include <benchmark/benchmark.h>

#include <cstdint>

#include "absl/functional/function_ref.h"

namespace kvlift::exec::bench {

enum class Limit {
  kFma,   // floating-point operations: counter "of_fma"
  kRead,  // bytes read from memory: counter "of_read"
};

// Times `body`, which does `amount` of what `limit` counts, with `threads` threads of one team.
// Counters: the kernel's best rate (1e9 per second), the probe's, and the fraction.
void RunProbed(benchmark::State& state, Limit limit, int threads, double amount,
               absl::FunctionRef<void()> body);

// Settings of a benchmark that uses RunProbed.
void Rounds(benchmark::internal::Benchmark* b);

}  // namespace kvlift::exec::bench
