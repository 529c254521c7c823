// Attention and cache writes of a layer with 32 query heads, 8 key heads and heads of 128 elements.
// Caches are as many as exceed the processor's caches, used in turn.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "exec/kernels/attention/attention_quantized.h"
#include "exec/kernels/common/kernel.h"
#include "exec/kernels/elementwise/rows.h"
#include "exec/memory/memory.h"
#include "exec/memory/tensor.h"
#include "probed.h"

namespace kvlift::exec::bench {
namespace {

constexpr int64_t kN = 32, kNk = 8, kD = 128, kGroup = 32;
constexpr int64_t kTotalBytes = int64_t{256} << 20;
constexpr int32_t kTypes[] = {onnx::TensorProto::FLOAT, onnx::TensorProto::FLOAT16,
                              onnx::TensorProto::BFLOAT16};

// In memory of the kind that a session keeps its caches in.
Tensor Room(int32_t type, Shape shape) {
  Buffer buffer;
  View view;
  view.type = type;
  view.shape = std::move(shape);
  if (!buffer.Reserve(static_cast<size_t>(view.bytes())).ok()) std::abort();
  view.data = buffer.data();
  return Tensor::Wrap(view, buffer.memory());
}

// `rows` of every [capacity, D] are filled; the others, which nobody reads, are never touched.
Tensor Noise(int32_t type, Shape shape, int64_t rows = -1) {
  const Tensor t = Room(type, std::move(shape));
  const int64_t head = t.shape()[2] * t.shape()[3], filled = rows < 0 ? head : rows * t.shape()[3];
  uint32_t state = 1;
  for (int64_t i = 0; i < t.size(); ++i) {
    if (i % head == filled) i += head - filled;
    if (i >= t.size()) break;
    state = state * 1664525u + 1013904223u;
    const float x = static_cast<float>(state >> 8) * 0x1p-24f - 0.5f;
    if (type == onnx::TensorProto::FLOAT) {
      t.span<float>()[i] = x;
    } else {
      t.span<uint16_t>()[i] =
          type == onnx::TensorProto::FLOAT16 ? FloatToHalf(x) : FloatToBfloat(x);
    }
  }
  return t;
}

// One operator on given tensors, without a program.
class Call {
 public:
  Call(const std::string& op, std::vector<Tensor> inputs, Tensor output) {
    node_.set_op_type(op);
    node_.add_output("y");
    if (op == "Attention" || op == kQuantizedAttention) {
      onnx::AttributeProto* causal = node_.add_attribute();
      causal->set_name("is_causal");
      causal->set_type(onnx::AttributeProto::INT);
      causal->set_i(1);
    }
    const bool quantized = op == kQuantizedAttention;
    for (const char* name : {kKeyGroup, kValueGroup}) {
      if (!quantized) break;
      onnx::AttributeProto* group = node_.add_attribute();
      group->set_name(name);
      group->set_type(onnx::AttributeProto::INT);
      group->set_i(kGroup);
    }
    op_ = FindOp(quantized ? kFusedDomain : "", op, 24);
    tensors_ = std::move(inputs);
    for (const Tensor& t : tensors_) inputs_.push_back(t.view());
    tensors_.push_back(output);
    outputs_.push_back(output.view());
  }
  void Run(int threads) {
    KernelContext context{node_, 24, inputs_, absl::MakeSpan(outputs_), nullptr};
    context.threads = threads;
    context.canonical = false;
    if (!op_->compute(context).ok()) std::abort();
  }

 private:
  onnx::NodeProto node_;
  const OpDef* op_;
  std::vector<Tensor> tensors_;
  std::vector<View> inputs_, outputs_;
};

Tensor Int64(int64_t x) {
  return Tensor::From<int64_t>(onnx::TensorProto::INT64, {1}, std::vector<int64_t>{x});
}

// Args: valid tokens, capacity / valid, type, threads.
void DecodeAttention(benchmark::State& state) {
  const int64_t valid = state.range(0), capacity = valid * state.range(1);
  const int32_t type = kTypes[state.range(2)];
  const int threads = static_cast<int>(state.range(3));
  const int64_t bytes = NumBytes(type, {2 * kNk * valid * kD});
  const int64_t most = std::max<int64_t>(1, (int64_t{3} << 30) / (bytes * state.range(1)));
  const int64_t layers = std::clamp<int64_t>(kTotalBytes / bytes, 1, most);
  std::vector<Call> calls;
  for (int64_t i = 0; i < layers; ++i) {
    calls.emplace_back(
        "Attention",
        std::vector<Tensor>{Noise(type, {1, kN, 1, kD}), Noise(type, {1, kNk, capacity, kD}, valid),
                            Noise(type, {1, kNk, capacity, kD}, valid), Tensor(), Tensor(),
                            Tensor(), Int64(valid)},
        Tensor(type, {1, kN, 1, kD}));
  }
  size_t next = 0;
  RunProbed(state, Limit::kRead, threads, static_cast<double>(bytes), [&] {
    calls[next].Run(threads);
    next = (next + 1) % calls.size();
  });
}
BENCHMARK(DecodeAttention)
    ->ArgNames({"valid", "capacity", "type", "threads"})
    ->ArgsProduct({{512, 2048, 4096, 16384}, {1}, {0, 1, 2}, {1, 2}})
    ->ArgsProduct({{2048, 4096}, {8}, {0, 1}, {1, 2}})
    ->ArgsProduct({{1024}, {1, 32}, {0, 1}, {1}})
    ->Apply(Rounds);

// Rows of float in int8, one scale per kGroup elements.
struct Int8Rows {
  Tensor values, scales;
};
Int8Rows Quantized(const Tensor& rows) {
  Shape shape = rows.shape();
  Int8Rows q{Room(onnx::TensorProto::INT8, shape), {}};
  shape.back() /= kGroup;
  q.scales = Room(onnx::TensorProto::FLOAT, shape);
  for (int64_t g = 0; g < q.scales.size(); ++g) {
    const float* x = rows.span<float>().data() + g * kGroup;
    float largest = 0;
    for (int64_t i = 0; i < kGroup; ++i) largest = std::max(largest, std::fabs(x[i]));
    const float scale = std::max(largest / 127, 0x1p-126f);
    q.scales.span<float>()[g] = scale;
    for (int64_t i = 0; i < kGroup; ++i) {
      q.values.span<int8_t>()[g * kGroup + i] = static_cast<int8_t>(std::nearbyint(x[i] / scale));
    }
  }
  return q;
}

// One token over int8 caches and over the same rows as floats, in turn: the least time of each, and
// how far results are from each other, as a part of the largest. Args: valid tokens, threads.
void DecodeQuantized(benchmark::State& state) {
  using Clock = std::chrono::steady_clock;
  const int64_t valid = state.range(0);
  const int threads = static_cast<int>(state.range(1));
  const int64_t bytes = NumBytes(onnx::TensorProto::FLOAT, {2 * kNk * valid * kD});
  const int64_t layers = std::max<int64_t>(2, kTotalBytes / bytes);
  std::vector<Call> floats, int8s;
  std::vector<std::pair<Tensor, Tensor>> results;
  for (int64_t i = 0; i < layers; ++i) {
    const Tensor q = Noise(onnx::TensorProto::FLOAT, {1, kN, 1, kD});
    const Tensor k = Noise(onnx::TensorProto::FLOAT, {1, kNk, valid, kD});
    const Tensor v = Noise(onnx::TensorProto::FLOAT, {1, kNk, valid, kD});
    const Int8Rows k8 = Quantized(k), v8 = Quantized(v);
    results.emplace_back(Tensor(onnx::TensorProto::FLOAT, {1, kN, 1, kD}),
                         Tensor(onnx::TensorProto::FLOAT, {1, kN, 1, kD}));
    const Tensor none, at = Int64(valid);
    floats.emplace_back("Attention", std::vector<Tensor>{q, k, v, none, none, none, at},
                        results.back().first);
    int8s.emplace_back(
        std::string(kQuantizedAttention),
        std::vector<Tensor>{q, k8.values, v8.values, none, none, none, at, k8.scales, v8.scales},
        results.back().second);
  }
  size_t next = 0;
  double wide = 1, narrow = 1;
  const auto timed = [&](Call& call, double* best) {
    const auto start = Clock::now();
    call.Run(threads);
    *best = std::min(*best, std::chrono::duration<double>(Clock::now() - start).count());
  };
  for (auto _ : state) {
    timed(floats[next], &wide);
    timed(int8s[next], &narrow);
    next = (next + 1) % floats.size();
  }
  double error = 0, largest = 0;
  for (const auto& [a, b] : results) {
    for (int64_t i = 0; i < a.size(); ++i) {
      error = std::max<double>(error, std::fabs(a.span<float>()[i] - b.span<float>()[i]));
      largest = std::max<double>(largest, std::fabs(a.span<float>()[i]));
    }
  }
  state.counters["fp32_us"] = wide * 1e6;
  state.counters["int8_us"] = narrow * 1e6;
  state.counters["faster"] = wide / narrow;
  state.counters["fewer_bytes"] = 4.0 / (1 + 4.0 / kGroup);
  state.counters["error"] = error / largest;
}
BENCHMARK(DecodeQuantized)
    ->ArgNames({"valid", "threads"})
    ->ArgsProduct({{1024, 4096, 16384}, {1, 2}})
    ->Iterations(60)
    ->Unit(benchmark::kMicrosecond);

// Args: queries, keys, type, threads. Counts the flops that a causal mask leaves.
void PrefillAttention(benchmark::State& state) {
  const int64_t S = state.range(0), T = state.range(1);
  const int32_t type = kTypes[state.range(2)];
  const int threads = static_cast<int>(state.range(3));
  Call call("Attention",
            {Noise(type, {1, kN, S, kD}), Noise(type, {1, kNk, T, kD}),
             Noise(type, {1, kNk, T, kD}), Tensor(), Tensor(), Tensor(), Int64(T)},
            Tensor(type, {1, kN, S, kD}));
  const double seen = static_cast<double>(S) * static_cast<double>(2 * (T - S) + S + 1) / 2;
  RunProbed(state, Limit::kFma, threads, 4.0 * kN * kD * seen, [&] { call.Run(threads); });
}
BENCHMARK(PrefillAttention)
    ->ArgNames({"queries", "keys", "type", "threads"})
    ->ArgsProduct({{256}, {256}, {0}, {1, 2}})
    ->ArgsProduct({{512}, {512, 4096}, {0, 1}, {1, 2}})
    ->ArgsProduct({{2048}, {2048}, {0}, {1, 2}})
    ->Apply(Rounds);

// One token written to each of many caches; the time per cache in ns, and as a multiple of copying
// the same bytes to memory that is not in the processor's caches either. Args: capacity, type,
// whether the slot moves on: the same one stays in the processor's caches.
void ScatterOneToken(benchmark::State& state) {
  using Clock = std::chrono::steady_clock;
  const int64_t capacity = state.range(0);
  const int32_t type = kTypes[state.range(1)];
  const int64_t bytes = NumBytes(type, {kNk * kD});
  const int64_t caches = std::min<int64_t>(32, (int64_t{2} << 30) / (bytes * capacity));
  Tensor at = Int64(0);
  std::vector<Call> calls;
  const Tensor update = Noise(type, {1, kNk, 1, kD});
  for (int64_t i = 0; i < caches; ++i) {
    const Tensor cache = Room(type, {1, kNk, capacity, kD});
    // Pages that the kernel clears while the clock runs would be in the processor's caches.
    std::memset(cache.data(), 0, static_cast<size_t>(cache.view().bytes()));
    calls.emplace_back("TensorScatter", std::vector<Tensor>{cache, update, at}, cache);
  }
  std::vector<std::byte> copies(static_cast<size_t>(kTotalBytes), std::byte{1});
  size_t place = 0;
  double best = 1, best_copy = 1;
  const auto per_cache = [&](auto body) {
    const auto start = Clock::now();
    for (int64_t i = 0; i < caches; ++i) body(i);
    return std::chrono::duration<double>(Clock::now() - start).count() /
           static_cast<double>(caches);
  };
  for (auto _ : state) {
    at.span<int64_t>()[0] = (at.span<int64_t>()[0] + state.range(2)) % capacity;
    const double seconds = per_cache([&](int64_t i) { calls[static_cast<size_t>(i)].Run(1); });
    best = std::min(best, seconds);
    best_copy =
        std::min(best_copy, per_cache([&](int64_t) {
                   std::memcpy(copies.data() + place, update.data(), static_cast<size_t>(bytes));
                   place = (place + static_cast<size_t>(bytes)) % copies.size();
                   benchmark::ClobberMemory();
                 }));
    state.SetIterationTime(seconds);
  }
  state.counters["ns"] = best * 1e9;
  state.counters["of_memcpy"] = best / best_copy;
}
BENCHMARK(ScatterOneToken)
    ->ArgNames({"capacity", "type", "moves"})
    ->ArgsProduct({{1024, 4096, 32768}, {0, 1}, {1}})
    ->ArgsProduct({{1024}, {0, 1}, {0}})
    ->Iterations(400)
    ->UseManualTime()
    ->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace kvlift::exec::bench

BENCHMARK_MAIN();
