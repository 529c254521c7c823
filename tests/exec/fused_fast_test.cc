// LIBS: exec
// The attentions of com.microsoft in order fast against the canonical order.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>

#include "exec/kernel_harness.h"
#include "fmt/format.h"

namespace kvlift::exec {
namespace {

constexpr int32_t kFloat = onnx::TensorProto::FLOAT;
constexpr int32_t kHalf = onnx::TensorProto::FLOAT16;
constexpr int32_t kInt = onnx::TensorProto::INT32;

using Rng = std::mt19937;

int64_t Pick(Rng& rng, std::vector<int64_t> values) { return values[rng() % values.size()]; }

Tensor Random(Rng& rng, int32_t type, Shape shape) {
  Tensor t(type, std::move(shape));
  std::normal_distribution<float> normal;
  for (int64_t i = 0; i < t.size(); ++i) {
    const float x = normal(rng);
    if (type == kFloat) {
      t.span<float>()[i] = x;
    } else {
      t.span<uint16_t>()[i] = FloatToHalf(x);
    }
  }
  return t;
}

// The results of both orders: output 0 close, the caches equal; order fast on any threads.
void ExpectAgreement(OpRun run, const std::vector<Tensor>& inputs, double tolerance,
                     const std::string& name) {
  auto canonical = run.Run(inputs);
  ASSERT_TRUE(canonical.ok()) << canonical.status() << name;
  auto fast = run.Fast().Run(inputs);
  ASSERT_TRUE(fast.ok()) << fast.status() << name;
  auto single = run.Threads(1).Run(inputs);
  ASSERT_TRUE(single.ok()) << single.status() << name;
  for (int64_t i = 0; i < (*fast)[0].size(); ++i) {
    const double x = ElementAsDouble((*fast)[0].view(), i);
    const double y = ElementAsDouble((*canonical)[0].view(), i);
    ASSERT_NEAR(x, y, tolerance * std::max(1.0, std::abs(y))) << i << " of " << name;
  }
  for (size_t o = 0; o < fast->size(); ++o) {
    const auto bytes = static_cast<size_t>((*fast)[o].view().bytes());
    EXPECT_EQ(std::memcmp((*fast)[o].data(), (*single)[o].data(), bytes), 0) << name;
    if (o == 0) continue;
    EXPECT_EQ(std::memcmp((*fast)[o].data(), (*canonical)[o].data(), bytes), 0) << name;
  }
}

TEST(FusedFastTest, GroupQueryAttention) {
  Rng rng(11);
  for (int i = 0; i < 60; ++i) {
    const int64_t B = Pick(rng, {1, 2}), Nk = Pick(rng, {1, 2}), G = Pick(rng, {1, 3, 4, 7});
    const int64_t S = Pick(rng, {1, 1, 2, 30}), D = Pick(rng, {16, 32, 40, 64}), N = Nk * G;
    const int64_t capacity = S + Pick(rng, {0, 1, 40, 600}), total = capacity;
    const auto type = static_cast<int32_t>(Pick(rng, {kFloat, kHalf}));
    const bool rotary = rng() % 2 == 0;
    OpRun run("GroupQueryAttention", 1, "com.microsoft");
    run.Int("num_heads", N).Int("kv_num_heads", Nk).Outputs(3).Int("do_rotary", rotary);
    if (rng() % 3 == 0) run.Float("softcap", 2);
    if (rng() % 3 == 0) run.Int("local_window_size", Pick(rng, {1, 20, 300}));
    Tensor lengths(kInt, {B});
    for (int32_t& n : lengths.span<int32_t>()) {
      n = static_cast<int32_t>(S == total ? S : S + rng() % (total - S + 1)) - 1;
    }
    std::vector<Tensor> inputs(12);
    inputs[0] = Random(rng, type, {B, S, N * D});
    inputs[1] = Random(rng, type, {B, S, Nk * D});
    inputs[2] = Random(rng, type, {B, S, Nk * D});
    inputs[3] = Random(rng, type, {B, Nk, capacity, D});
    inputs[4] = Random(rng, type, {B, Nk, capacity, D});
    inputs[5] = lengths;
    inputs[6] = Tensor::From<int32_t>(kInt, {1}, std::vector<int32_t>{static_cast<int32_t>(total)});
    if (rotary) {
      inputs[7] = Random(rng, type, {capacity, D / 2});
      inputs[8] = Random(rng, type, {capacity, D / 2});
    }
    if (rng() % 3 == 0) inputs[10] = Random(rng, type, {1, N, S, total});
    if (rng() % 3 == 0) inputs[11] = Random(rng, type, {N});
    ExpectAgreement(run, inputs, type == kFloat ? 5e-6 : 2e-3,
                    fmt::format("B {} Nk {} G {} S {} D {} capacity {}", B, Nk, G, S, D, capacity));
  }
}

TEST(FusedFastTest, MultiHeadAttention) {
  Rng rng(12);
  for (int i = 0; i < 40; ++i) {
    const int64_t B = Pick(rng, {1, 2}), N = Pick(rng, {1, 3, 4}), S = Pick(rng, {1, 2, 40});
    const int64_t D = Pick(rng, {16, 24, 64}), P = Pick(rng, {0, 0, 5, 530});
    const auto type = static_cast<int32_t>(Pick(rng, {kFloat, kHalf}));
    OpRun run("MultiHeadAttention", 1, "com.microsoft");
    run.Int("num_heads", N).Int("unidirectional", rng() % 2).Outputs(rng() % 2 == 0 ? 3 : 1);
    std::vector<Tensor> inputs(8);
    for (int k = 0; k < 3; ++k) inputs[k] = Random(rng, type, {B, S, N * D});
    if (rng() % 2 == 0) inputs[3] = Random(rng, type, {3 * N * D});
    if (rng() % 2 == 0) {
      inputs[4] = Tensor(kInt, {B, P + S});
      for (int32_t& m : inputs[4].span<int32_t>()) m = rng() % 4 != 0;
    }
    if (rng() % 2 == 0) inputs[5] = Random(rng, type, {1, N, S, P + S});
    if (P > 0) {
      inputs[6] = Random(rng, type, {B, N, P, D});
      inputs[7] = Random(rng, type, {B, N, P, D});
    }
    ExpectAgreement(run, inputs, type == kFloat ? 5e-6 : 2e-3,
                    fmt::format("B {} N {} S {} D {} P {}", B, N, S, D, P));
  }
}

// ONNX Runtime hides keys from all queries but the last, which it takes to stand at the end.
TEST(FusedFastTest, UnidirectionalMultiHeadAttentionHidesNoKeyFromTheLastQuery) {
  Rng rng(13);
  constexpr int64_t kWidth = 8, kQueries = 3, kKeys = 6;
  const std::vector<Tensor> inputs = {Random(rng, kFloat, {1, kQueries, kWidth}),
                                      Random(rng, kFloat, {1, kKeys, kWidth}),
                                      Random(rng, kFloat, {1, kKeys, kWidth})};
  for (const bool fast : {false, true}) {
    std::vector<Tensor> results;
    for (const int64_t unidirectional : {0, 1}) {
      OpRun run("MultiHeadAttention", 1, "com.microsoft");
      run.Int("num_heads", 2).Int("unidirectional", unidirectional).Fast(fast);
      auto outputs = run.Run(inputs);
      ASSERT_TRUE(outputs.ok()) << outputs.status();
      results.push_back((*outputs)[0]);
    }
    const auto all = results[0].span<float>(), hidden = results[1].span<float>();
    const auto values = inputs[2].span<float>();
    for (int64_t i = 0; i < kWidth; ++i) {
      const int64_t last = (kQueries - 1) * kWidth + i;
      EXPECT_FLOAT_EQ(hidden[last], all[last]) << i;
      EXPECT_FLOAT_EQ(hidden[i], values[i]) << "the first query sees the first key alone";
    }
  }
}

}  // namespace
}  // namespace kvlift::exec
