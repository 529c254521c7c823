// Matrix products: [M, 4096] times [4096, 4096].
#include <cstddef>
#include <memory>
#include <vector>

#include "exec/kernels/products/gemm_product.h"
#include "exec/kernels/products/panel.h"
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

// Packed weights. Args: M, threads, type (0 float, 1 float16, 2 bfloat16).
void ProductPacked(benchmark::State& state) {
  const int64_t m = state.range(0);
  const int threads = static_cast<int>(state.range(1));
  const auto storage = static_cast<Storage>(state.range(2));
  const int64_t bytes = storage == Storage::kNative ? 4 : 2;
  const std::vector<std::byte> weights(kN * kK * bytes), a(m * kK * bytes);
  std::vector<std::byte> c(m * kN * bytes);
  // Several copies, so that none is in a cache when its turn comes.
  constexpr int kCopies = 4;
  std::shared_ptr<const PackedMatrix> b[kCopies];
  for (auto& copy : b) copy = PackedMatrix::Make(weights.data(), storage, kK, kN, kN, 1, threads);
  PanelProduct p;
  p.m = m;
  p.a = a.data();
  p.c = c.data();
  p.storage = storage;
  const bool read = m <= 8;
  const double amount =
      read ? static_cast<double>(kN * kK * bytes) : 2.0 * static_cast<double>(m) * kN * kK;
  int next = 0;
  RunProbed(state, read ? Limit::kRead : Limit::kFma, threads, amount, [&] {
    p.b = b[next++ % kCopies].get();
    MultiplyPanels(p, threads);
  });
}
BENCHMARK(ProductPacked)->ArgsProduct({{1, 8, 16, 32, 128, 512}, {1, 2}, {0, 1, 2}})->Apply(Rounds);

}  // namespace
}  // namespace kvlift::exec::bench

BENCHMARK_MAIN();
