// Quantized products of [M, 4096] and 4096 x 4096 weights. MatMulNBits: weights of few bits in
// blocks of 32, float scales. MatMulInteger: bytes.
#include <cstdlib>
#include <memory>
#include <utility>
#include <vector>

#include "exec/kernels/common/kernel.h"
#include "exec/kernels/products/bits_panel.h"
#include "exec/memory/tensor.h"
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

// Args: M, threads.
void Integers(benchmark::State& state) {
  const int64_t m = state.range(0);
  const int threads = static_cast<int>(state.range(1));
  const OpDef* op = FindOp("", "MatMulInteger", 10);
  onnx::NodeProto node;
  node.set_op_type("MatMulInteger");
  std::vector<uint8_t> a(m * kK, 200), zero_a(1, 128);
  std::vector<std::vector<int8_t>> b(8, std::vector<int8_t>(kK * kN, 3));
  std::vector<int32_t> y(m * kN);
  const auto view = [](int32_t type, Shape shape, void* data) {
    View v;
    v.type = type;
    v.shape = std::move(shape);
    v.data = static_cast<std::byte*>(data);
    return v;
  };
  const View zero = view(onnx::TensorProto::UINT8, {}, zero_a.data());
  View out = view(onnx::TensorProto::INT32, {m, kN}, y.data());
  const bool read = m == 1;
  const double amount =
      read ? static_cast<double>(kN * kK) : 2.0 * static_cast<double>(m) * kN * kK;
  size_t next = 0;
  RunProbed(state, read ? Limit::kRead : Limit::kFma, threads, amount, [&] {
    const std::vector<View> inputs = {view(onnx::TensorProto::UINT8, {m, kK}, a.data()),
                                      view(onnx::TensorProto::INT8, {kK, kN}, b[next].data()),
                                      zero};
    next = (next + 1) % b.size();
    KernelContext context{node, 10, inputs, absl::MakeSpan(&out, 1), nullptr};
    context.threads = threads;
    if (!op->compute(context).ok()) std::abort();
  });
}
BENCHMARK(Integers)->ArgsProduct({{1, 8, 128}, {1, 2}})->Apply(Rounds);

}  // namespace
}  // namespace kvlift::exec::bench

BENCHMARK_MAIN();
