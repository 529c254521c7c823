// LIBS: exec
// Attention in order fast against the canonical order in double.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>

#include "exec/kernel_harness.h"
#include "exec/kernels/attention/attention_isa.h"
#include "fmt/format.h"

namespace kvlift::exec {
namespace {

constexpr int32_t kFloat = onnx::TensorProto::FLOAT;
constexpr int32_t kDouble = onnx::TensorProto::DOUBLE;
constexpr int32_t kHalf = onnx::TensorProto::FLOAT16;
constexpr int32_t kBfloat = onnx::TensorProto::BFLOAT16;
constexpr int32_t kBool = onnx::TensorProto::BOOL;
constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

using Rng = std::mt19937;

int64_t Pick(Rng& rng, std::vector<int64_t> values) { return values[rng() % values.size()]; }

void Set(Tensor& t, int64_t i, float x) {
  if (t.type() == kFloat) t.span<float>()[i] = x;
  if (t.type() == kHalf) t.span<uint16_t>()[i] = FloatToHalf(x);
  if (t.type() == kBfloat) t.span<uint16_t>()[i] = FloatToBfloat(x);
  if (t.type() == kBool) t.span<uint8_t>()[i] = x > -0.7f;
}

Tensor Random(Rng& rng, int32_t type, Shape shape) {
  Tensor t(type, std::move(shape));
  std::normal_distribution<float> normal;
  for (int64_t i = 0; i < t.size(); ++i) Set(t, i, normal(rng));
  return t;
}

Tensor AsDouble(const Tensor& t) {
  if (t.empty() || t.type() == kBool || t.type() == onnx::TensorProto::INT64) return t;
  Tensor out(kDouble, t.shape());
  for (int64_t i = 0; i < t.size(); ++i) out.span<double>()[i] = ElementAsDouble(t.view(), i);
  return out;
}

// Entry b of the first dimension.
Tensor Entry(const Tensor& t, int64_t b) {
  if (t.empty()) return t;
  Shape shape = t.shape();
  shape[0] = 1;
  Tensor out(t.type(), shape);
  const auto bytes = static_cast<size_t>(out.view().bytes());
  if (bytes > 0) std::memcpy(out.data(), t.data() + static_cast<size_t>(b) * bytes, bytes);
  return out;
}

bool Same(const Tensor& a, const Tensor& b) {
  return a.shape() == b.shape() &&
         std::memcmp(a.data(), b.data(), static_cast<size_t>(a.view().bytes())) == 0;
}

struct Case {
  int64_t B = 1, Nk = 2, G = 4, S = 1, T = 700, D = 64, Dv = 64;
  int32_t type = kFloat;
  bool causal = true;
  int64_t left = -1, right = -1;
  float softcap = 0;
  Tensor q, k, v, mask, lengths;

  void Fill(Rng& rng) {
    q = Random(rng, type, {B, Nk * G, S, D});
    k = Random(rng, type, {B, Nk, T, D});
    v = Random(rng, type, {B, Nk, T, Dv});
  }
  OpRun Op() const {
    OpRun run("Attention", 25);
    run.Int("is_causal", causal).Int("left_window_size", left).Int("right_window_size", right);
    run.Float("softcap", softcap);
    return run;
  }
  std::vector<Tensor> Inputs() const { return {q, k, v, mask, Tensor(), Tensor(), lengths}; }
  Tensor Fast(int threads = 2) const {
    auto out = Op().Fast().Threads(threads).Run(Inputs());
    EXPECT_TRUE(out.ok()) << out.status();
    return (*out)[0];
  }
  Tensor Exact() const {
    std::vector<Tensor> inputs = Inputs();
    for (Tensor& t : inputs) t = AsDouble(t);
    auto out = Op().Run(std::move(inputs));
    EXPECT_TRUE(out.ok()) << out.status();
    return (*out)[0];
  }
  std::string Name() const {
    return fmt::format(
        "B {} Nk {} G {} S {} T {} D {} Dv {} type {} causal {} window {} {} cap {} "
        "mask {}",
        B, Nk, G, S, T, D, Dv, type, causal, left, right, softcap,
        mask.empty() ? "" : ShapeString(mask.shape()));
  }
};

double Tolerance(int32_t type) { return type == kFloat ? 5e-6 : type == kHalf ? 2e-3 : 2e-2; }

void ExpectClose(const Case& c, const Tensor& fast) {
  const Tensor exact = c.Exact();
  ASSERT_EQ(fast.shape(), exact.shape()) << c.Name();
  for (int64_t i = 0; i < fast.size(); ++i) {
    const double x = ElementAsDouble(fast.view(), i), y = exact.span<double>()[i];
    ASSERT_NEAR(x, y, Tolerance(c.type) * std::max(1.0, std::abs(y))) << i << " of " << c.Name();
  }
}

Case RandomCase(Rng& rng) {
  Case c;
  c.B = Pick(rng, {1, 1, 2, 3});
  c.Nk = Pick(rng, {1, 2, 3});
  c.G = Pick(rng, {1, 2, 3, 4, 5, 6, 7, 8});
  c.S = Pick(rng, {1, 1, 1, 2, 3, 5, 17, 40, 70});
  c.T = c.S + Pick(rng, {0, 1, 15, 16, 31, 100, 255, 256, 511, 512, 513, 1100});
  c.D = Pick(rng, {16, 20, 32, 64, 80, 96, 128, 256, 7});
  c.Dv = Pick(rng, {c.D, c.D, 24, 128, 9});
  c.type = static_cast<int32_t>(Pick(rng, {kFloat, kFloat, kHalf, kBfloat}));
  c.causal = rng() % 2 == 0;
  if (rng() % 4 == 0) c.left = Pick(rng, {0, 3, 300, 600});
  if (rng() % 6 == 0) c.right = Pick(rng, {0, 5});
  if (rng() % 6 == 0) c.softcap = 1.5f;
  c.Fill(rng);
  if (rng() % 2 == 0) {
    c.lengths = Tensor(onnx::TensorProto::INT64, {c.B});
    for (int64_t& n : c.lengths.span<int64_t>()) {
      n = rng() % 5 == 0 ? 0 : c.S + static_cast<int64_t>(rng() % (c.T - c.S + 1));
    }
  }
  if (rng() % 2 == 0) {
    const int64_t keys = rng() % 4 == 0 ? std::max<int64_t>(1, c.T - 9) : c.T;
    const int32_t type = rng() % 2 == 0 ? kBool : c.type;
    c.mask = Random(rng, type,
                    {Pick(rng, {1, c.B}), Pick(rng, {1, c.Nk * c.G}), Pick(rng, {1, c.S}), keys});
    for (int64_t i = 0; i < c.mask.size(); i += 5) Set(c.mask, i, -kInf);
  }
  return c;
}

TEST(AttentionFastTest, RandomShapesOnAnyThreadsAndInAnyBatch) {
  Rng rng(7);
  for (int i = 0; i < 120; ++i) {
    const Case c = RandomCase(rng);
    const Tensor fast = c.Fast(1);
    ASSERT_NO_FATAL_FAILURE(ExpectClose(c, fast));
    for (int threads : {2, 3, 8}) ASSERT_TRUE(Same(fast, c.Fast(threads))) << c.Name();
    for (int64_t b = 0; b < c.B && c.B > 1; ++b) {
      Case one = c;
      one.B = 1;
      one.q = Entry(c.q, b);
      one.k = Entry(c.k, b);
      one.v = Entry(c.v, b);
      one.lengths = Entry(c.lengths, b);
      if (!c.mask.empty() && c.mask.shape()[0] == c.B) one.mask = Entry(c.mask, b);
      ASSERT_TRUE(Same(Entry(fast, b), one.Fast())) << c.Name();
    }
  }
}

TEST(AttentionFastTest, WhatLiesBehindTheValidKeysDoesNotMatter) {
  for (int64_t S : {1, 3, 40}) {
    Rng rng(3);
    Case c;
    c.B = 2;
    c.S = S;
    c.Fill(rng);
    c.lengths = Tensor::From<int64_t>(onnx::TensorProto::INT64, {2}, std::vector<int64_t>{600, 0});
    const Tensor clean = c.Fast();
    for (Tensor* t : {&c.k, &c.v}) {
      *t = t->Clone();
      for (int64_t head = 0; head < 4; ++head) {
        for (int64_t i = (head < 2 ? 600 : 0) * 64; i < 700 * 64; ++i) {
          Set(*t, head * 700 * 64 + i, i % 2 == 0 ? kNaN : kInf);
        }
      }
    }
    const Tensor dirty = c.Fast();
    EXPECT_TRUE(Same(clean, dirty)) << S;
    // The second entry sees nothing.
    for (int64_t i = dirty.size() / 2; i < dirty.size(); ++i) {
      ASSERT_EQ(dirty.span<float>()[i], 0) << S;
    }
  }
}

TEST(AttentionFastTest, KeysThatARowDoesNotSeeDoNotMatter) {
  for (int64_t S : {2, 40}) {
    Rng rng(4);
    Case c;
    c.S = S;
    c.Fill(rng);
    c.mask = Random(rng, kBool, {1, 1, 1, c.T});
    c.mask.span<uint8_t>()[5] = 0;
    const Tensor clean = c.Fast();
    for (Tensor* t : {&c.k, &c.v}) {
      *t = t->Clone();
      for (int64_t d = 0; d < 64; ++d) {
        Set(*t, 5 * 64 + d, kNaN);          // masked for all queries
        Set(*t, (c.T - 1) * 64 + d, kInf);  // seen by the last query only
      }
    }
    const Tensor dirty = c.Fast();
    for (int64_t h = 0; h < 4; ++h) {
      for (int64_t i = 0; i < (S - 1) * 64; ++i) {
        const int64_t at = h * S * 64 + i;
        ASSERT_NEAR(clean.span<float>()[at], dirty.span<float>()[at], 1e-5) << S;
      }
    }
  }
}

TEST(AttentionFastTest, RowsWithoutAnyKeyAreZero) {
  for (int64_t S : {1, 40}) {
    Rng rng(5);
    Case c;
    c.S = S;
    c.Fill(rng);
    c.mask = Tensor::Zeros(kBool, {1, 1, S, c.T});
    EXPECT_TRUE(Same(c.Fast(), Tensor::Zeros(kFloat, c.q.shape())));
    c.mask = Tensor(kFloat, {1, 1, S, c.T});
    for (float& x : c.mask.span<float>()) x = -kInf;
    EXPECT_TRUE(Same(c.Fast(), Tensor::Zeros(kFloat, c.q.shape())));
    for (float& x : c.mask.span<float>()) x = std::numeric_limits<float>::lowest();
    ExpectClose(c, c.Fast());
  }
}

// Every table gives the same bits (the portable one too where the compiler fuses in it).
TEST(AttentionFastTest, InstructionSetsAgree) {
  std::vector<const AttentionKernels*> tables;
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
    tables.push_back(Avx2Attention());
  }
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq")) {
    tables.push_back(Avx512Attention());
  }
#endif
  Rng rng(6);
  for (int i = 0; i < 200; ++i) {
    const int64_t heads = 1 + rng() % 9, rows = 1 + rng() % 70, size = 16 * (1 + rng() % 17);
    const auto storage = static_cast<Storage>(rng() % 3);
    const Tensor data = Random(rng,
                               storage == Storage::kNative ? kFloat
                               : storage == Storage::kHalf ? kHalf
                                                           : kBfloat,
                               {rows, size});
    const Tensor queries = Random(rng, kFloat, {heads, size});
    const RowBlock block = {data.data(), storage, size, rows, size};
    const int64_t ld = rows + 3;
    const auto run = [&](const AttentionKernels& ops) {
      Tensor scores = Tensor::Zeros(kFloat, {heads, ld}),
             out = Tensor::Zeros(kFloat, {heads, size});
      ops.scores(block, queries.span<float>().data(), heads, scores.span<float>().data(), ld);
      ops.values(block, scores.span<float>().data(), ld, heads, out.span<float>().data());
      return std::pair(scores, out);
    };
    const auto generic = run(GenericAttention());
    for (const AttentionKernels* ops : tables) {
      if (ops == nullptr) continue;
      const auto fast = run(*ops), first = run(*tables[0]);
      EXPECT_TRUE(Same(fast.first, first.first) && Same(fast.second, first.second));
      for (int64_t k = 0; k < fast.first.size(); ++k) {
        ASSERT_NEAR(fast.first.span<float>()[k], generic.first.span<float>()[k], 1e-3);
      }
      for (int64_t k = 0; k < fast.second.size(); ++k) {
        ASSERT_NEAR(fast.second.span<float>()[k], generic.second.span<float>()[k], 1e-1);
      }
    }
  }
}

TEST(AttentionFastTest, OddElementsAreFoundAndTheHighestIsNoNaN) {
  std::vector<const AttentionKernels*> tables = {&GenericAttention(), &AttentionIsa()};
#if defined(__x86_64__)
  if (Avx2Attention() != nullptr && __builtin_cpu_supports("avx2")) {
    tables.push_back(Avx2Attention());
  }
#endif
  for (const AttentionKernels* table : tables) {
    for (int64_t n : {0, 1, 7, 8, 16, 17, 63, 64, 65, 200}) {
      std::vector<float> x(static_cast<size_t>(n), std::numeric_limits<float>::max());
      EXPECT_FALSE(table->odd(x.data(), n));
      EXPECT_EQ(table->highest(x.data(), n), n == 0 ? -kInf : std::numeric_limits<float>::max());
      for (size_t i = 0; i < x.size(); ++i) {
        for (float odd : {kInf, -kInf, kNaN}) {
          std::vector<float> y(x.size(), -1);
          y[i] = odd;
          ASSERT_TRUE(table->odd(y.data(), n)) << i << " of " << n;
          const float highest = odd == kInf ? kInf : n > 1 ? -1 : -kInf;
          ASSERT_EQ(table->highest(y.data(), n), highest) << i << " of " << n;
        }
      }
    }
  }
}

TEST(AttentionFastTest, SoftCap) {
  std::vector<const AttentionKernels*> tables = {&GenericAttention(), &AttentionIsa()};
#if defined(__x86_64__)
  if (Avx2Attention() != nullptr && __builtin_cpu_supports("avx2")) {
    tables.push_back(Avx2Attention());
  }
#endif
  for (const AttentionKernels* table : tables) {
    std::vector<float> x = {0, -0.0f, kInf, -kInf, 1e-30f, 1e30f, -1e30f};
    for (int i = -4000; i <= 4000; ++i) x.push_back(static_cast<float>(i) * 0.05f);
    std::vector<float> y = x;
    table->soft_cap(y.data(), static_cast<int64_t>(y.size()), 30);
    for (size_t i = 0; i < x.size(); ++i) {
      const double expected = 30 * std::tanh(double{x[i]} / 30);
      ASSERT_NEAR(y[i], expected, 4e-7 * std::abs(expected)) << x[i];
    }
    float nan = kNaN;
    table->soft_cap(&nan, 1, 30);
    EXPECT_TRUE(std::isnan(nan));
  }
}

}  // namespace
}  // namespace kvlift::exec
