// Matrix products: [M, 4096] times [4096, 4096].
#include <vector>

#include "exec/kernels/gemm_product.h"
#include "probed.h"

namespace kvlift::exec::bench {
namespace {

constexpr int64_t kN = 4096, kK = 4096;

// Row-major weights, as they stand in a model. Args: M, threads.
void ProductUnpacked(benchmark::State& state) {
  const int64_t m = state.range(0);
  const int threads = static_cast<int>(state.range(1));
  const std::vector<float> a(m * kK, 0.5f), b(kK * kN, 0.25f);
  std::vector<float> c(m * kN);
  Product<float> p;
  p.m = m;
  p.n = kN;
  p.k = kK;
  p.a = a.data();
  p.a_row = kK;
  p.b = b.data();
  p.b_k = kN;
  p.c = c.data();
  p.c_row = kN;
  const bool read = m <= 8;
  const double amount = read ? 4.0 * kN * kK : 2.0 * static_cast<double>(m) * kN * kK;
  RunProbed(state, read ? Limit::kRead : Limit::kFma, threads, amount,
            [&] { Multiply(p, threads); });
}
BENCHMARK(ProductUnpacked)->ArgsProduct({{1, 8, 128, 512}, {1, 2}})->Apply(Rounds);

}  // namespace
}  // namespace kvlift::exec::bench

BENCHMARK_MAIN();
