// LIBS: exec
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include "exec/kernel_harness.h"

namespace kvlift::exec {
namespace {

using ::testing::Each;
using ::testing::FloatNear;

constexpr int32_t kFloat = onnx::TensorProto::FLOAT;
constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

Tensor Random(Shape shape, int seed) {
  Tensor t(kFloat, std::move(shape));
  std::mt19937 rng(static_cast<unsigned>(seed));
  std::normal_distribution<float> normal;
  for (float& x : t.span<float>()) x = normal(rng);
  return t;
}
Tensor Filled(Shape shape, float value) {
  Tensor t(kFloat, std::move(shape));
  for (float& x : t.span<float>()) x = value;
  return t;
}
Tensor Lengths(const std::vector<int64_t>& values) {
  return Tensor::From<int64_t>(onnx::TensorProto::INT64, {static_cast<int64_t>(values.size())},
                               values);
}
std::vector<float> Values(const Tensor& t) {
  return {t.span<float>().begin(), t.span<float>().end()};
}
// Equal bit for bit.
bool Same(const Tensor& a, const Tensor& b) {
  return a.shape() == b.shape() &&
         std::memcmp(a.data(), b.data(), static_cast<size_t>(a.view().bytes())) == 0;
}

struct Case {
  int64_t B = 2, N = 4, Nk = 2, S = 3, T = 9, D = 8, Dv = 8;
  bool causal = false;
  std::vector<int64_t> nonpad = {};
  int64_t past = 0;  // of the T keys, the first ones come as past_key
  double softcap = 0;
  int64_t left = -1, right = -1;
  Shape mask = {};  // empty: none
  bool mask_bool = false;
};

struct Inputs {
  Tensor q, k, v, mask;  // k, v: all T keys
};

Inputs MakeInputs(const Case& c) {
  Inputs in{Random({c.B, c.N, c.S, c.D}, 1), Random({c.B, c.Nk, c.T, c.D}, 2),
            Random({c.B, c.Nk, c.T, c.Dv}, 3), Tensor()};
  if (c.mask.empty()) return in;
  Tensor bias = Random(c.mask, 4);
  if (!c.mask_bool) {
    bias.span<float>()[0] = -kInf;
    in.mask = bias;
    return in;
  }
  in.mask = Tensor(onnx::TensorProto::BOOL, c.mask);
  for (int64_t i = 0; i < bias.size(); ++i) {
    in.mask.span<uint8_t>()[i] = bias.span<float>()[i] > -0.5f;
  }
  return in;
}

// Written from the operator text, in double.
std::vector<double> Reference(const Case& c, const Inputs& in) {
  std::vector<double> out;
  for (int64_t b = 0; b < c.B; ++b) {
    const int64_t valid = c.nonpad.empty() ? c.T : c.nonpad[b];
    const int64_t offset = c.nonpad.empty() ? c.past : valid - c.S;
    for (int64_t h = 0; h < c.N; ++h) {
      const int64_t kv = b * c.Nk + h / (c.N / c.Nk);
      for (int64_t s = 0; s < c.S; ++s) {
        std::vector<double> score(c.T, -INFINITY);
        double top = -INFINITY, total = 0;
        for (int64_t t = 0; t < valid; ++t) {
          if (c.causal && t > s + offset) continue;
          if (c.left >= 0 && t < s + offset - c.left) continue;
          if (c.right >= 0 && t > s + offset + c.right) continue;
          double x = 0;
          for (int64_t d = 0; d < c.D; ++d) {
            x += double{in.q.span<float>()[((b * c.N + h) * c.S + s) * c.D + d]} *
                 in.k.span<float>()[(kv * c.T + t) * c.D + d];
          }
          x /= std::sqrt(static_cast<double>(c.D));
          if (c.softcap != 0) x = c.softcap * std::tanh(x / c.softcap);
          if (!c.mask.empty()) {
            Shape m(4 - c.mask.size(), 1);
            m.insert(m.end(), c.mask.begin(), c.mask.end());
            if (t >= m[3]) continue;
            const int64_t at = ((b % m[0] * m[1] + h % m[1]) * m[2] + s % m[2]) * m[3] + t;
            if (c.mask_bool) {
              if (in.mask.span<uint8_t>()[at] == 0) continue;
            } else {
              x += in.mask.span<float>()[at];
            }
          }
          score[t] = x;
          top = std::max(top, x);
        }
        std::vector<double> row(c.Dv, 0.0);
        for (int64_t t = 0; t < c.T && top != -INFINITY; ++t) {
          const double e = std::exp(score[t] - top);
          total += e;
          for (int64_t d = 0; e != 0 && d < c.Dv; ++d) {
            row[d] += e * in.v.span<float>()[(kv * c.T + t) * c.Dv + d];
          }
        }
        for (double x : row) out.push_back(total == 0 ? 0 : x / total);
      }
    }
  }
  return out;
}

Tensor Tokens(const Tensor& t, int64_t begin, int64_t end) {
  const Shape& s = t.shape();
  Tensor out(kFloat, {s[0], s[1], end - begin, s[3]});
  for (int64_t i = 0; i < s[0] * s[1]; ++i) {
    std::copy_n(t.span<float>().data() + (i * s[2] + begin) * s[3], (end - begin) * s[3],
                out.span<float>().data() + i * (end - begin) * s[3]);
  }
  return out;
}

absl::StatusOr<Tensor> Attend(const Case& c, const Inputs& in, int threads = 2) {
  OpRun run("Attention", 25);
  run.Int("is_causal", c.causal).Threads(threads);
  if (c.softcap != 0) run.Float("softcap", static_cast<float>(c.softcap));
  if (c.left >= 0) run.Int("left_window_size", c.left);
  if (c.right >= 0) run.Int("right_window_size", c.right);
  std::vector<Tensor> inputs = {in.q, in.k, in.v, in.mask, Tensor(), Tensor(), Tensor()};
  if (c.past > 0) {
    inputs[1] = Tokens(in.k, c.past, c.T);
    inputs[2] = Tokens(in.v, c.past, c.T);
    inputs[4] = Tokens(in.k, 0, c.past);
    inputs[5] = Tokens(in.v, 0, c.past);
    run.Outputs(3);
  }
  if (!c.nonpad.empty()) inputs[6] = Lengths(c.nonpad);
  auto out = run.Run(inputs);
  if (!out.ok()) return out.status();
  if (c.past > 0) {
    EXPECT_TRUE(Same((*out)[1], in.k));
    EXPECT_TRUE(Same((*out)[2], in.v));
  }
  return (*out)[0];
}

class AttentionCase : public ::testing::TestWithParam<Case> {};

TEST_P(AttentionCase, MatchesReferenceOnAnyNumberOfThreads) {
  const Case& c = GetParam();
  const Inputs in = MakeInputs(c);
  const auto out = Attend(c, in);
  ASSERT_TRUE(out.ok()) << out.status();
  const auto expected = Reference(c, in);
  ASSERT_EQ(out->size(), static_cast<int64_t>(expected.size()));
  for (size_t i = 0; i < expected.size(); ++i) {
    ASSERT_NEAR(out->span<float>()[i], expected[i], 2e-6) << i;
  }
  const auto single = Attend(c, in, 1);
  ASSERT_TRUE(single.ok()) << single.status();
  EXPECT_TRUE(Same(*out, *single));
}

INSTANTIATE_TEST_SUITE_P(
    All, AttentionCase,
    ::testing::Values(
        Case{}, Case{.causal = true}, Case{.T = 70, .D = 20, .Dv = 37, .causal = true},
        Case{.N = 6, .Nk = 1, .S = 1, .T = 133}, Case{.nonpad = {5, 9}},
        Case{.causal = true, .nonpad = {5, 9}}, Case{.causal = true, .nonpad = {0, 2}},
        Case{.causal = true, .past = 6}, Case{.past = 8}, Case{.S = 60, .T = 60, .causal = true},
        Case{.softcap = 1.5, .mask = {3, 9}}, Case{.mask = {4, 3, 9}}, Case{.mask = {2, 1, 3, 9}},
        Case{.mask = {2, 1, 1, 9}, .mask_bool = true}, Case{.mask = {4, 1, 9}, .mask_bool = true},
        Case{.nonpad = {4, 6}, .mask = {3, 6}},
        Case{.nonpad = {4, 6}, .mask = {2, 4, 3, 7}, .mask_bool = true},
        Case{.causal = true, .mask = {2, 4, 3, 9}},
        Case{.S = 20, .T = 90, .causal = true, .nonpad = {60, 90}, .left = 33},
        Case{.S = 40, .T = 40, .left = 2, .right = 1}, Case{.past = 6, .left = 0},
        Case{.S = 5, .T = 5, .right = 0}));

TEST(AttentionTest, WhatLiesBehindTheValidKeysDoesNotMatter) {
  const Case small{.S = 2, .T = 40, .causal = true, .nonpad = {40, 33}};
  Case large = small;
  large.T = 300;
  const Inputs a = MakeInputs(small);
  Inputs b{a.q, Filled({2, 2, 300, 8}, kNaN), Filled({2, 2, 300, 8}, kNaN), Tensor()};
  for (int64_t i = 0; i < 4; ++i) {
    std::copy_n(&a.k.span<float>()[i * 320], 8 * small.nonpad[i / 2], &b.k.span<float>()[i * 2400]);
    std::copy_n(&a.v.span<float>()[i * 320], 8 * small.nonpad[i / 2], &b.v.span<float>()[i * 2400]);
  }
  const auto x = Attend(small, a), y = Attend(large, b);
  ASSERT_TRUE(x.ok() && y.ok());
  EXPECT_TRUE(Same(*x, *y));
}

TEST(AttentionTest, ValuesOfMaskedKeysDoNotMatter) {
  Case c{.mask = {1, 1, 1, 9}, .mask_bool = true};
  Inputs in = MakeInputs(c);
  in.mask.span<uint8_t>()[0] = 1;
  in.mask.span<uint8_t>()[7] = 0;
  const auto clean = Attend(c, in);
  for (int64_t i = 0; i < 4; ++i) {
    std::fill_n(&in.v.span<float>()[(i * 9 + 7) * 8], 8, i % 2 == 0 ? kNaN : kInf);
    std::fill_n(&in.k.span<float>()[(i * 9 + 7) * 8], 8, kNaN);
  }
  const auto dirty = Attend(c, in);
  ASSERT_TRUE(clean.ok() && dirty.ok());
  EXPECT_TRUE(Same(*clean, *dirty));
}

TEST(AttentionTest, RowsWithoutAnyKeyAreZeroButAFiniteMinimumIsArithmetic) {
  const Tensor q = Random({1, 1, 1, 4}, 1), k = Random({1, 1, 3, 4}, 2);
  const Tensor v = Tensor::From<float>(kFloat, {1, 1, 3, 1}, std::vector<float>{3, 6, 12});
  const auto masked = [&](const Tensor& mask) {
    auto out = OpRun("Attention").Run({q, k, v, mask});
    EXPECT_TRUE(out.ok()) << out.status();
    return (*out)[0].span<float>()[0];
  };
  EXPECT_EQ(masked(Filled({1, 3}, -kInf)), 0);
  EXPECT_EQ(masked(Tensor::Zeros(onnx::TensorProto::BOOL, {1, 3})), 0);
  EXPECT_FLOAT_EQ(masked(Filled({1, 3}, std::numeric_limits<float>::lowest())), 7);
}

TEST(AttentionTest, RefusesLengthsOutsideTheCache) {
  for (int64_t bad : {-1, 10}) {
    Case c{.nonpad = {bad, 3}};
    EXPECT_EQ(Attend(c, MakeInputs(c)).status().code(), absl::StatusCode::kInvalidArgument);
  }
}

TEST(AttentionTest, OneTokenAtATimeGivesThePrefillRows) {
  const Case prefill{.N = 8, .S = 70, .T = 70, .D = 64, .Dv = 64, .causal = true};
  const Inputs in = MakeInputs(prefill);
  const auto all = Attend(prefill, in);
  ASSERT_TRUE(all.ok());
  for (int64_t s : {0, 1, 31, 32, 69}) {
    const Case step{
        .N = 8, .S = 1, .T = 70, .D = 64, .Dv = 64, .causal = true, .nonpad = {s + 1, s + 1}};
    const auto one = Attend(step, {Tokens(in.q, s, s + 1), in.k, in.v, Tensor()});
    ASSERT_TRUE(one.ok()) << one.status();
    EXPECT_TRUE(Same(*one, Tokens(*all, s, s + 1))) << s;
  }
}

void ExpectEqualToItsDecomposition(int64_t S, int64_t D, int64_t Dv) {
  const Case c{.N = 2, .Nk = 2, .S = S, .T = 77, .D = D, .Dv = Dv, .mask = {2, 1, S, 77}};
  Inputs in = MakeInputs(c);
  for (int64_t t = 60; t < 77; ++t) in.mask.span<float>()[t] = -kInf;
  Tensor transposed(kFloat, {2, 2, D, 77});
  for (int64_t i = 0; i < 4; ++i) {
    for (int64_t t = 0; t < 77; ++t) {
      for (int64_t d = 0; d < D; ++d) {
        transposed.span<float>()[(i * D + d) * 77 + t] = in.k.span<float>()[(i * 77 + t) * D + d];
      }
    }
  }
  const auto next = [](OpRun run, std::vector<Tensor> inputs) {
    auto out = run.Run(std::move(inputs));
    EXPECT_TRUE(out.ok()) << out.status();
    return (*out)[0];
  };
  const Tensor scale = Filled({}, static_cast<float>(1 / std::sqrt(static_cast<double>(D))));
  Tensor x = next(OpRun("MatMul"), {in.q, transposed});
  x = next(OpRun("Mul"), {x, scale});
  x = next(OpRun("Add"), {x, in.mask});
  x = next(OpRun("Softmax").Int("axis", -1), {x});
  x = next(OpRun("MatMul"), {x, in.v});
  const auto fused = Attend(c, in);
  ASSERT_TRUE(fused.ok());
  EXPECT_TRUE(Same(x, *fused));
}

TEST(AttentionTest, EqualsItsDecompositionBitForBit) {
  for (int64_t S : {1, 2, 5, 60}) {
    for (int64_t D : {48, 20, 64}) {
      for (int64_t Dv : {40, 48, 128}) ExpectEqualToItsDecomposition(S, D, Dv);
    }
  }
}

TEST(AttentionTest, Rank3IsRank4WithHeadsInside) {
  const Case c{.B = 2, .N = 4, .Nk = 2, .S = 3, .T = 9, .D = 8, .Dv = 5, .causal = true};
  const Inputs in = MakeInputs(c);
  const auto inside = [](const Tensor& t) {
    const Shape& s = t.shape();
    Tensor out(kFloat, {s[0], s[2], s[1] * s[3]});
    for (int64_t b = 0; b < s[0]; ++b) {
      for (int64_t h = 0; h < s[1]; ++h) {
        for (int64_t i = 0; i < s[2]; ++i) {
          std::copy_n(&t.span<float>()[((b * s[1] + h) * s[2] + i) * s[3]], s[3],
                      &out.span<float>()[((b * s[2] + i) * s[1] + h) * s[3]]);
        }
      }
    }
    return out;
  };
  const auto rank4 = Attend(c, in);
  const auto rank3 = OpRun("Attention")
                         .Int("is_causal", 1)
                         .Int("q_num_heads", 4)
                         .Int("kv_num_heads", 2)
                         .Run({inside(in.q), inside(in.k), inside(in.v)});
  ASSERT_TRUE(rank4.ok() && rank3.ok()) << rank3.status();
  EXPECT_TRUE(Same(inside(*rank4), (*rank3)[0]));
}

TEST(AttentionTest, QkOutputs) {
  const Tensor q = Filled({1, 1, 1, 4}, 1), k = Filled({1, 1, 3, 4}, 1),
               v = Filled({1, 1, 3, 1}, 1);
  const Tensor mask = Tensor::From<float>(kFloat, {1, 3}, std::vector<float>{0, 1, -kInf});
  const auto output = [&](int64_t mode) {
    auto out = OpRun("Attention")
                   .Float("softcap", 1)
                   .Int("qk_matmul_output_mode", mode)
                   .Outputs(4)
                   .Run({q, k, v, mask});
    EXPECT_TRUE(out.ok()) << out.status();
    return Values((*out)[3]);
  };
  EXPECT_THAT(output(0), Each(2.0f));
  EXPECT_THAT(output(1), Each(FloatNear(std::tanh(2.0f), 1e-6f)));
  const auto biased = output(2);
  EXPECT_FLOAT_EQ(biased[1], std::tanh(2.0f) + 1);
  EXPECT_EQ(biased[2], -kInf);
  const auto p = output(3);
  EXPECT_FLOAT_EQ(p[0], 1 / (1 + std::exp(1.0f)));
  EXPECT_EQ(p[2], 0);
}

}  // namespace
}  // namespace kvlift::exec
