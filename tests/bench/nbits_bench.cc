// MatMulNBits: [M, 4096] times 4096 x 4096 weights of few bits in blocks of 32, float scales.
#include <memory>
#include <vector>

#include "exec/kernels/bits_panel.h"
#include "probed.h"

namespace kvlift::exec::bench {
namespace {

constexpr int64_t kN = 4096, kK = 4096, kBlock = 32;

// Args: M, threads, bits, rows of a as 8-bit codes.
void NBits(benchmark::State& state) {
  const int64_t m = state.range(0);
  const int threads = static_cast<int>(state.range(1));
  BitsSource source;
  source.n = kN;
  source.k = kK;
  source.block = kBlock;
  source.bits = static_cast<int>(state.range(2));
  const std::vector<uint8_t> codes(kN * kK * source.bits / 8, 0x5A);
  const std::vector<float> scales(kN * kK / kBlock, 0.01f), a(m * kK, 0.5f);
  source.codes = codes.data();
  source.scales = scales.data();
  std::vector<float> c(m * kN);
  // Several copies, so that none is in a cache when its turn comes.
  std::vector<std::shared_ptr<const PackedBits>> b(state.range(2) == 4 ? 16 : 8);
  for (auto& copy : b) copy = PackedBits::Make(source, state.range(3) != 0, threads);
  PanelProduct p;
  p.m = m;
  p.a = a.data();
  p.c = c.data();
  const bool read = m == 1;
  const double amount = read ? static_cast<double>(b[0]->panel_bytes() * b[0]->panels())
                             : 2.0 * static_cast<double>(m) * kN * kK;
  const auto multiply = b[0]->integer_dot() ? MultiplyBitsDot : MultiplyPanels;
  size_t next = 0;
  RunProbed(state, read ? Limit::kRead : Limit::kFma, threads, amount, [&] {
    p.b = b[next++ % b.size()].get();
    multiply(p, threads);
  });
}
BENCHMARK(NBits)->ArgsProduct({{1, 8, 128}, {1, 2}, {4, 8}, {0, 1}})->Apply(Rounds);

}  // namespace
}  // namespace kvlift::exec::bench

BENCHMARK_MAIN();
