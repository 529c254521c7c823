#include "exec/kernels/common/probe.h"

#ifdef _OPENMP
#include <omp.h>
#endif

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <memory>
#include <vector>

#include "exec/kernels/common/gemm_isa.h"
#include "exec/memory/memory.h"

namespace kvlift::exec {
namespace {

using Clock = std::chrono::steady_clock;

int ThreadCount(int threads) {
#ifdef _OPENMP
  return threads > 0 ? threads : omp_get_max_threads();
#else
  (void)threads;
  return 1;
#endif
}

// Runs body(t) for t < threads at the same time; returns the seconds until all are done.
template <typename Body>
double Seconds(int threads, const Body& body) {
  const auto start = Clock::now();
#ifdef _OPENMP
#pragma omp parallel for num_threads(threads) schedule(static, 1)
#endif
  for (int t = 0; t < threads; ++t) body(t);
  return std::max(std::chrono::duration<double>(Clock::now() - start).count(), 1e-9);
}

constexpr size_t kProbeBytes = size_t{192} << 20;  // larger than any cache

std::shared_ptr<void> ProbeMemory() {
  std::shared_ptr<void> memory = AllocateHuge(kProbeBytes);
  if (memory != nullptr) std::memset(memory.get(), 0x3d, kProbeBytes);
  return memory;
}

}  // namespace

double ProbeReadGbs(int threads) {
  static const std::shared_ptr<void> memory = ProbeMemory();
  if (memory == nullptr) return 0;
  const auto* buffer = static_cast<const float*>(memory.get());
  const int count = ThreadCount(threads);
  const int64_t share = kProbeBytes / 4 / count;
  std::vector<float> sums(count);
  const double seconds =
      Seconds(count, [&](int t) { sums[t] = Isa().probe.read(buffer + t * share, share); });
  const volatile float sink = sums[0];
  (void)sink;
  return static_cast<double>(share * count) * 4 / seconds * 1e-9;
}

double ProbeFmaGflops(int threads) {
  constexpr int64_t kRounds = 200000;
  const ProbeOps& probe = Isa().probe;
  const int count = ThreadCount(threads);
  std::vector<float> sums(count);
  const double seconds = Seconds(count, [&](int t) { sums[t] = probe.chains(kRounds); });
  const volatile float sink = sums[0];
  (void)sink;
  return static_cast<double>(kRounds * probe.chain_flops * count) / seconds * 1e-9;
}

const char* IsaName() { return Isa().name; }

}  // namespace kvlift::exec
