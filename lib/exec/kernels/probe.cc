#include "exec/kernels/probe.h"

#ifdef _OPENMP
#include <omp.h>
#endif

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <vector>

#include "exec/kernels/gemm_isa.h"

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

// Runs body(t) for t < threads at the same time; seconds until all are done.
template <typename Body>
double Seconds(int threads, const Body& body) {
  const auto start = Clock::now();
#ifdef _OPENMP
#pragma omp parallel for num_threads(threads) schedule(static, 1)
#endif
  for (int t = 0; t < threads; ++t) body(t);
  return std::max(std::chrono::duration<double>(Clock::now() - start).count(), 1e-9);
}

}  // namespace

double ProbeReadGbs(int threads) {
  constexpr int64_t kFloats = int64_t{48} << 20;  // 192 MiB: beyond any cache
  static const std::vector<float> buffer(kFloats, 1.0f);
  const int count = ThreadCount(threads);
  const int64_t share = kFloats / count;
  std::vector<float> sums(count);
  const double seconds = Seconds(
      count, [&](int t) { sums[t] = Vectors<float>().sum(buffer.data() + t * share, share); });
  const volatile float sink = sums[0];
  (void)sink;
  return static_cast<double>(share * count) * 4 / seconds * 1e-9;
}

double ProbeFmaGflops(int threads) {
  constexpr int64_t kDepth = 256;
  constexpr int kRounds = 4000, kWidth = VectorOps<float>::kPanel;
  const auto& ops = Vectors<float>();
  const int rows = ops.max_rows, count = ThreadCount(threads);
  const std::vector<float> a(rows * kDepth, 0.5f), b(kDepth * kWidth, 0.25f);
  std::vector<std::vector<float>> c(count, std::vector<float>(rows * kWidth));
  const double seconds = Seconds(count, [&](int t) {
    for (int k = 0; k < kRounds; ++k) {
      ops.tile(rows, kWidth, kDepth, a.data(), kDepth, 1, b.data(), kWidth, c[t].data(), kWidth,
               false);
    }
  });
  return 2.0 * kRounds * count * rows * kWidth * static_cast<double>(kDepth) / seconds * 1e-9;
}

const char* IsaName() { return Isa().name; }

}  // namespace kvlift::exec
