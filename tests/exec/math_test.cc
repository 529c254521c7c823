// LIBS: exec
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include "exec/kernel_harness.h"
#include "exec/kernels/common/gemm_isa.h"

namespace kvlift::exec {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

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
Tensor Floats(Shape shape, const std::vector<float>& values) {
  return Tensor::From<float>(kFloat, std::move(shape), values);
}
Tensor Ints(Shape shape, const std::vector<int64_t>& values) {
  return Tensor::From<int64_t>(onnx::TensorProto::INT64, std::move(shape), values);
}
Tensor One(const OpRun& run, std::vector<Tensor> inputs) {
  auto out = run.Run(std::move(inputs));
  EXPECT_TRUE(out.ok()) << out.status();
  return out.ok() ? (*out)[0] : Tensor(kFloat, {0});
}
std::vector<float> Values(const Tensor& t) {
  return {t.span<float>().begin(), t.span<float>().end()};
}
std::vector<int64_t> Integers(const Tensor& t) {
  return {t.span<int64_t>().begin(), t.span<int64_t>().end()};
}
bool Same(const Tensor& a, const Tensor& b) {
  return a.shape() == b.shape() &&
         std::memcmp(a.data(), b.data(), static_cast<size_t>(a.view().bytes())) == 0;
}
Tensor Transposed(const Tensor& t) {
  const int64_t m = t.shape()[0], n = t.shape()[1];
  Tensor out(kFloat, {n, m});
  for (int64_t i = 0; i < m; ++i) {
    for (int64_t j = 0; j < n; ++j) out.span<float>()[j * m + i] = t.span<float>()[i * n + j];
  }
  return out;
}
Tensor Rows(const Tensor& t, int64_t count) {
  Tensor out(kFloat, {count, t.shape()[1]});
  std::copy_n(t.span<float>().data(), out.size(), out.span<float>().data());
  return out;
}

TEST(MatMulTest, Literal) {
  EXPECT_THAT(Values(One(OpRun("MatMul"),
                         {Floats({2, 3}, {1, 2, 3, 4, 5, 6}), Floats({3, 2}, {1, 0, 0, 1, 1, 1})})),
              ElementsAre(4, 5, 10, 11));
  EXPECT_THAT(Integers(One(OpRun("MatMul"), {Ints({2}, {2, 3}), Ints({2, 1}, {10, -1})})),
              ElementsAre(17));
}

TEST(MatMulTest, ShapesOfNumpy) {
  const auto shape = [](Shape a, Shape b) {
    return One(OpRun("MatMul"), {Random(std::move(a), 1), Random(std::move(b), 2)}).shape();
  };
  EXPECT_EQ(shape({4}, {4}), Shape({}));
  EXPECT_EQ(shape({4}, {4, 3}), Shape({3}));
  EXPECT_EQ(shape({2, 4}, {4}), Shape({2}));
  EXPECT_EQ(shape({5, 1, 2, 4}, {3, 4, 6}), Shape({5, 3, 2, 6}));
  EXPECT_EQ(shape({4}, {7, 4, 6}), Shape({7, 6}));
  EXPECT_EQ(shape({2, 0}, {0, 3}), Shape({2, 3}));
  EXPECT_FALSE(OpRun("MatMul").Run({Random({2, 3}, 1), Random({2, 3}, 1)}).ok());
}

TEST(MatMulTest, BatchesPairUp) {
  const Tensor a = Random({3, 1, 2, 5}, 1), b = Random({2, 5, 4}, 2);
  const Tensor c = One(OpRun("MatMul"), {a, b});
  for (int64_t i = 0; i < 3 * 2 * 2 * 4; ++i) {
    const int64_t n = i % 4, m = i / 4 % 2, batch_b = i / 8 % 2, batch_a = i / 16;
    double sum = 0;
    for (int64_t k = 0; k < 5; ++k) {
      sum += double{a.span<float>()[(batch_a * 2 + m) * 5 + k]} *
             b.span<float>()[(batch_b * 5 + k) * 4 + n];
    }
    EXPECT_NEAR(c.span<float>()[i], sum, 1e-5);
  }
}

struct Size {
  int64_t m, n, k;
};

class ProductTest : public ::testing::TestWithParam<Size> {};

TEST_P(ProductTest, IsOneChainWhateverRowsThreadsAndLayout) {
  const auto [m, n, k] = GetParam();
  const Tensor a = Random({m, k}, 1), b = Random({k, n}, 2);
  const Tensor c = One(OpRun("MatMul"), {a, b});
  for (int64_t i = 0; i < m; i += 5) {
    for (int64_t j = 0; j < n; j += 3) {
      double sum = 0;
      float chain = 0;
      for (int64_t p = 0; p < k; ++p) {
        const float x = a.span<float>()[i * k + p], y = b.span<float>()[p * n + j];
        sum += double{x} * y;
        chain = std::fma(x, y, chain);
      }
      ASSERT_NEAR(c.span<float>()[i * n + j], sum, 1e-6 * (10 + static_cast<double>(k)));
      if (std::string(Isa().name) != "generic") {
        ASSERT_EQ(c.span<float>()[i * n + j], chain);
      }
    }
  }
  EXPECT_TRUE(Same(c, One(OpRun("MatMul").Threads(1), {a, b})));
  EXPECT_TRUE(Same(c, One(OpRun("MatMul").Threads(3), {a, b})));
  for (int64_t rows : {1, 7, 9, 40}) {
    if (rows > m) continue;
    EXPECT_TRUE(Same(Rows(c, rows), One(OpRun("MatMul"), {Rows(a, rows), b}))) << rows;
  }
  EXPECT_TRUE(Same(c, One(OpRun("Gemm").Int("transB", 1), {a, Transposed(b)})));
  EXPECT_TRUE(Same(c, One(OpRun("Gemm").Int("transA", 1), {Transposed(a), b})));
  EXPECT_TRUE(Same(c, One(OpRun("Einsum").String("equation", "mk,kn->mn"), {a, b})));
}

INSTANTIATE_TEST_SUITE_P(All, ProductTest,
                         ::testing::Values(Size{1, 1, 1}, Size{7, 70, 33}, Size{13, 31, 300},
                                           Size{50, 130, 17}, Size{100, 600, 260},
                                           Size{1, 1000, 64}, Size{260, 40, 8}));

TEST(MatMulTest, SmallFloatsRoundOnce) {
  for (const int32_t type : {onnx::TensorProto::FLOAT16, onnx::TensorProto::BFLOAT16}) {
    const auto to = type == onnx::TensorProto::FLOAT16 ? FloatToHalf : FloatToBfloat;
    const auto from = type == onnx::TensorProto::FLOAT16 ? HalfToFloat : BfloatToFloat;
    for (int64_t m : {1, 20}) {
      Tensor a(type, {m, 90}), b(type, {90, 50});
      std::mt19937 rng(1);
      std::normal_distribution<float> normal;
      for (uint16_t& x : a.span<uint16_t>()) x = to(normal(rng));
      for (uint16_t& x : b.span<uint16_t>()) x = to(normal(rng));
      Tensor wide_a(kFloat, {m, 90}), wide_b(kFloat, {90, 50});
      for (int64_t i = 0; i < a.size(); ++i) {
        wide_a.span<float>()[i] = from(a.span<uint16_t>()[i]);
      }
      for (int64_t i = 0; i < b.size(); ++i) {
        wide_b.span<float>()[i] = from(b.span<uint16_t>()[i]);
      }
      const Tensor c = One(OpRun("MatMul"), {a, b});
      const Tensor wide = One(OpRun("MatMul"), {wide_a, wide_b});
      for (int64_t i = 0; i < c.size(); ++i) {
        ASSERT_EQ(c.span<uint16_t>()[i], to(wide.span<float>()[i])) << i;
      }
    }
  }
}

TEST(GemmTest, ScalesAndAddsABroadcastBias) {
  EXPECT_THAT(Values(One(OpRun("Gemm").Float("alpha", 2).Float("beta", 0.5f),
                         {Floats({2, 1}, {1, 2}), Floats({1, 2}, {3, 4}), Floats({2}, {10, 20})})),
              ElementsAre(11, 18, 17, 26));
}

TEST(EinsumTest, Forms) {
  const Tensor x = Floats({2, 2}, {1, 2, 3, 4}), y = Floats({2, 2}, {1, 1, 0, 1});
  const auto run = [&](const std::string& equation, std::vector<Tensor> inputs) {
    return Values(One(OpRun("Einsum").String("equation", equation), std::move(inputs)));
  };
  EXPECT_THAT(run("ij->ji", {x}), ElementsAre(1, 3, 2, 4));
  EXPECT_THAT(run("ii", {x}), ElementsAre(5));
  EXPECT_THAT(run("ij,jk", {x, y}), ElementsAre(1, 3, 3, 7));
  EXPECT_THAT(run("...j,kj->...k", {x, y}), ElementsAre(3, 2, 7, 4));
  EXPECT_THAT(run("ij,ij->", {x, y}), ElementsAre(7));
}

TEST(IsaTest, TablesGiveTheSameBits) {
  const IsaTable* a = Avx2Isa();
  const IsaTable* b = Avx512Isa();
  if (a == nullptr || b == nullptr || std::string(Isa().name) != "avx512") {
    GTEST_SKIP() << "needs both instruction sets";
  }
  const Tensor q = Random({6, 45}, 1), k = Random({45, 29}, 2);
  std::vector<float> ca(6 * 29), cb(6 * 29);
  for (const auto& [table, c] : {std::pair(a, &ca), std::pair(b, &cb)}) {
    table->f32.tile(6, 29, 45, q.span<float>().data(), 45, 1, k.span<float>().data(), 29, c->data(),
                    29, false);
  }
  EXPECT_EQ(ca, cb);
  for (const auto& [table, c] : {std::pair(a, &ca), std::pair(b, &cb)}) {
    c->resize(q.size());
    c->push_back(table->f32.exp_sum(q.span<float>().data(), q.size(), 1.5f, c->data()));
    c->push_back(table->f32.sum(q.span<float>().data(), q.size()));
    c->push_back(table->f32.sum_squares(q.span<float>().data(), q.size()));
  }
  EXPECT_EQ(ca, cb);
}

TEST(IsaTest, EveryTableConvertsExactly) {
  std::vector<uint16_t> all(65536), back(65536);
  for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<uint16_t>(i);
  std::vector<float> wide(all.size());
  std::vector<const IsaTable*> tables = {&GenericIsa(), &Isa()};
  for (const IsaTable* table : tables) {
    table->convert.half_to_float(all.data(), 65536, wide.data());
    table->convert.float_to_half(wide.data(), 65536, back.data());
    for (size_t i = 0; i < all.size(); ++i) {
      if (std::isnan(wide[i])) continue;
      ASSERT_EQ(wide[i], HalfToFloat(all[i])) << i;
      ASSERT_EQ(back[i], all[i]) << i;
    }
    // Halfway between two halves, and just beside.
    for (size_t i = 0; i < 0x7BFF; i += 7) {
      const float middle = (HalfToFloat(all[i]) + HalfToFloat(all[i + 1])) / 2;
      const float around[3] = {std::nextafter(middle, 0.0f), middle, std::nextafter(middle, kInf)};
      uint16_t got[3];
      table->convert.float_to_half(around, 3, got);
      for (int j = 0; j < 3; ++j) ASSERT_EQ(got[j], FloatToHalf(around[j])) << around[j];
      table->convert.float_to_bfloat(around, 3, got);
      for (int j = 0; j < 3; ++j) ASSERT_EQ(got[j], FloatToBfloat(around[j])) << around[j];
    }
  }
}

TEST(ExpTest, OneUlpAndLimits) {
  const std::vector<float> special = {-kInf, -200, -1e30f, 0, kInf, 89, kNaN, -103};
  const std::vector<float> y = Values(One(OpRun("Exp"), {Floats({8}, special)}));
  EXPECT_EQ(y[0], 0);
  EXPECT_EQ(y[1], 0);
  EXPECT_EQ(y[2], 0);
  EXPECT_EQ(y[3], 1);
  EXPECT_EQ(y[4], kInf);
  EXPECT_EQ(y[5], kInf);
  EXPECT_TRUE(std::isnan(y[6]));
  EXPECT_FLOAT_EQ(y[7], 1.4012985e-45f);
  std::vector<float> x;
  for (float v = -87; v < 88; v += 0.00173f) x.push_back(v);
  const std::vector<float> e = Values(One(OpRun("Exp"), {Floats({(int64_t)x.size()}, x)}));
  for (size_t i = 0; i < x.size(); ++i) {
    const double exact = std::exp(double{x[i]});
    const double ulp = std::nextafter(e[i], kInf) - e[i];
    // Without a fused multiply-add the argument loses a little more.
    ASSERT_LE(std::fabs(e[i] - exact) / ulp, std::string(Isa().name) == "generic" ? 1.5 : 1.0)
        << x[i];
  }
}

TEST(SoftmaxTest, LiteralAxesAndCoercion) {
  const float a = 1 / (1 + std::exp(1.0f)), b = 1 - a;
  const Tensor x = Floats({2, 2}, {0, 1, 0, 2});
  const std::vector<float> last = Values(One(OpRun("Softmax"), {x}));
  EXPECT_FLOAT_EQ(last[0], a);
  EXPECT_FLOAT_EQ(last[1], b);
  const std::vector<float> first = Values(One(OpRun("Softmax").Int("axis", 0), {x}));
  EXPECT_FLOAT_EQ(first[0], 0.5f);
  EXPECT_FLOAT_EQ(first[3], b);
  const std::vector<float> coerced = Values(One(OpRun("Softmax", 11).Int("axis", 0), {x}));
  EXPECT_FLOAT_EQ(coerced[3], std::exp(2.0f) / (2 + std::exp(1.0f) + std::exp(2.0f)));
  const std::vector<float> log = Values(One(OpRun("LogSoftmax"), {x}));
  EXPECT_FLOAT_EQ(log[0], std::log(a));
}

TEST(SoftmaxTest, MaskedTailDoesNotChangeBits) {
  const Tensor x = Random({1, 83}, 3);
  Tensor padded(kFloat, {1, 200});
  for (float& v : padded.span<float>()) v = -kInf;
  std::copy_n(x.span<float>().data(), 83, padded.span<float>().data());
  const Tensor y = One(OpRun("Softmax"), {x}), z = One(OpRun("Softmax"), {padded});
  EXPECT_EQ(std::memcmp(y.data(), z.data(), 83 * sizeof(float)), 0);
  EXPECT_EQ(z.span<float>()[100], 0);
}

TEST(NormTest, LayerNormAgainstDouble) {
  const Tensor x = Random({3, 4, 50}, 1), g = Random({50}, 2), b = Random({50}, 3);
  const auto out = OpRun("LayerNormalization").Outputs(3).Run({x, g, b});
  ASSERT_TRUE(out.ok()) << out.status();
  EXPECT_EQ((*out)[1].shape(), Shape({3, 4, 1}));
  for (int64_t r = 0; r < 12; ++r) {
    double mean = 0, variance = 0;
    for (int64_t i = 0; i < 50; ++i) mean += x.span<float>()[r * 50 + i] / 50.0;
    for (int64_t i = 0; i < 50; ++i) {
      variance += std::pow(x.span<float>()[r * 50 + i] - mean, 2) / 50.0;
    }
    EXPECT_NEAR((*out)[1].span<float>()[r], mean, 1e-6);
    EXPECT_NEAR((*out)[2].span<float>()[r], 1 / std::sqrt(variance + 1e-5), 1e-5);
    for (int64_t i = 0; i < 50; ++i) {
      const double y =
          (x.span<float>()[r * 50 + i] - mean) / std::sqrt(variance + 1e-5) * g.span<float>()[i] +
          b.span<float>()[i];
      EXPECT_NEAR((*out)[0].span<float>()[r * 50 + i], y, 1e-5);
    }
  }
}

TEST(NormTest, RmsNormEqualsItsDecompositionBitForBit) {
  const Tensor x = Random({5, 77}, 1), g = Random({77}, 2);
  for (const bool power : {false, true}) {
    Tensor square = power ? One(OpRun("Pow"), {x, Floats({}, {2})}) : One(OpRun("Mul"), {x, x});
    Tensor mean = One(OpRun("ReduceMean"), {square, Ints({1}, {-1})});
    Tensor root = One(OpRun("Sqrt"), {One(OpRun("Add"), {mean, Floats({}, {1e-6f})})});
    const Tensor y = One(OpRun("Mul"), {One(OpRun("Div"), {x, root}), g});
    const Tensor fused = One(OpRun("RMSNormalization").Float("epsilon", 1e-6f), {x, g});
    EXPECT_TRUE(Same(y, fused));
  }
}

TEST(ReduceTest, AxesAsInputAndAttribute) {
  const Tensor x = Floats({2, 3}, {1, 2, 3, 4, 5, 6});
  EXPECT_THAT(Values(One(OpRun("ReduceSum"), {x, Ints({1}, {0})})), ElementsAre(5, 7, 9));
  EXPECT_THAT(Values(One(OpRun("ReduceSum", 11).Ints("axes", {1}), {x})), ElementsAre(6, 15));
  EXPECT_EQ(One(OpRun("ReduceSum", 11).Ints("axes", {1}), {x}).shape(), Shape({2, 1}));
  EXPECT_EQ(One(OpRun("ReduceMax").Int("keepdims", 0), {x}).shape(), Shape({}));
  EXPECT_THAT(Values(One(OpRun("ReduceMax").Int("keepdims", 0), {x})), ElementsAre(6));
  EXPECT_THAT(Values(One(OpRun("ReduceSum").Int("noop_with_empty_axes", 1), {x})),
              ElementsAre(1, 2, 3, 4, 5, 6));
  EXPECT_THAT(Values(One(OpRun("ReduceSum"), {Tensor(kFloat, {0, 2}), Ints({1}, {0})})),
              ElementsAre(0, 0));
  EXPECT_THAT(Integers(One(OpRun("ReduceMean"), {Ints({2, 2}, {1, 4, -3, -4}), Ints({1}, {1})})),
              ElementsAre(2, -3));
}

TEST(ReduceTest, SeveralAxesAgainstDouble) {
  const Tensor x = Random({3, 4, 5, 6}, 1);
  const Tensor y = One(OpRun("ReduceSum").Int("keepdims", 0), {x, Ints({2}, {0, -2})});
  ASSERT_EQ(y.shape(), Shape({4, 6}));
  for (int64_t i = 0; i < 24; ++i) {
    double sum = 0;
    for (int64_t j = 0; j < 15; ++j) {
      sum += x.span<float>()[((j / 5 * 4 + i / 6) * 5 + j % 5) * 6 + i % 6];
    }
    EXPECT_NEAR(y.span<float>()[i], sum, 1e-5);
  }
}

TEST(ElementwiseTest, Broadcasting) {
  EXPECT_THAT(Values(One(OpRun("Add"), {Floats({2, 1}, {1, 2}), Floats({3}, {10, 20, 30})})),
              ElementsAre(11, 21, 31, 12, 22, 32));
  EXPECT_THAT(Values(One(OpRun("Sub"), {Floats({}, {1}), Floats({2}, {1, 2})})),
              ElementsAre(0, -1));
  const Tensor a = Random({2, 1, 3, 1, 5}, 1), b = Random({4, 1, 6, 1}, 2);
  const Tensor y = One(OpRun("Mul"), {a, b});
  ASSERT_EQ(y.shape(), Shape({2, 4, 3, 6, 5}));
  for (int64_t i = 0; i < y.size(); ++i) {
    const int64_t i4 = i % 5, i3 = i / 5 % 6, i2 = i / 30 % 3, i1 = i / 90 % 4, i0 = i / 360;
    ASSERT_EQ(y.span<float>()[i],
              a.span<float>()[(i0 * 3 + i2) * 5 + i4] * b.span<float>()[i1 * 6 + i3]);
  }
  EXPECT_FALSE(OpRun("Add").Run({Floats({2}, {1, 2}), Floats({3}, {1, 2, 3})}).ok());
}

TEST(ElementwiseTest, IntegerDivisionTruncatesAndRefusesZero) {
  EXPECT_THAT(Integers(One(OpRun("Div"), {Ints({3}, {7, -7, 7}), Ints({3}, {2, 2, -2})})),
              ElementsAre(3, -3, -3));
  EXPECT_THAT(Integers(One(OpRun("Div"),
                           {Ints({1}, {std::numeric_limits<int64_t>::min()}), Ints({1}, {-1})})),
              ElementsAre(std::numeric_limits<int64_t>::min()));
  const auto zero = OpRun("Div").Run({Ints({2}, {1, 2}), Ints({2}, {1, 0})});
  EXPECT_EQ(zero.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(zero.status().message()), HasSubstr("\"node\""));
  EXPECT_THAT(Integers(One(OpRun("Mod"), {Ints({2}, {-7, 7}), Ints({2}, {3, -3})})),
              ElementsAre(2, -2));
  EXPECT_THAT(Integers(One(OpRun("Mod").Int("fmod", 1), {Ints({2}, {-7, 7}), Ints({2}, {3, -3})})),
              ElementsAre(-1, 1));
}

TEST(ElementwiseTest, NaNsAndManyOperands) {
  const std::vector<float> y =
      Values(One(OpRun("Max"), {Floats({3}, {kNaN, 1, 5}), Floats({3}, {0, kNaN, 2})}));
  EXPECT_TRUE(std::isnan(y[0]) && std::isnan(y[1]));
  EXPECT_EQ(y[2], 5);
  EXPECT_THAT(Values(One(OpRun("Sum"),
                         {Floats({2}, {1, 2}), Floats({}, {10}), Floats({2, 1}, {100, 200})})),
              ElementsAre(111, 112, 211, 212));
  EXPECT_THAT(Values(One(OpRun("Mean"), {Floats({1}, {1}), Floats({1}, {2}), Floats({1}, {6})})),
              ElementsAre(3));
  EXPECT_THAT(Values(One(OpRun("Clip"), {Floats({3}, {-5, 0, 5}), Tensor(), Floats({}, {1})})),
              ElementsAre(-5, 0, 1));
}

TEST(ElementwiseTest, PowerKeepsTheTypeOfTheBase) {
  EXPECT_THAT(Integers(One(OpRun("Pow"), {Ints({3}, {2, -3, 7}), Ints({3}, {10, 3, 0})})),
              ElementsAre(1024, -27, 1));
  EXPECT_THAT(Integers(One(OpRun("Pow"), {Ints({1}, {2}), Floats({1}, {3})})), ElementsAre(8));
  EXPECT_THAT(Values(One(OpRun("Pow"), {Floats({3}, {2, -3, 4}), Ints({3}, {-1, 3, 2})})),
              ElementsAre(0.5, -27, 16));
  const Tensor bytes = Tensor::From<int8_t>(onnx::TensorProto::INT8, {3}, {3, -1, 0});
  EXPECT_THAT(Values(One(OpRun("Pow"), {Floats({3}, {2, 4, 7}), bytes})), ElementsAre(8, 0.25, 1));
  const Tensor large = Tensor::From<uint64_t>(onnx::TensorProto::UINT64, {}, {uint64_t{1} << 63});
  EXPECT_THAT(Integers(One(OpRun("Pow"), {Ints({3}, {2, -1, 1}), large})), ElementsAre(0, 1, 1));
}

TEST(ElementwiseTest, SwishIsXTimesSigmoid) {
  const Tensor x = Random({3, 700}, 1);
  const Tensor product = One(OpRun("Mul"), {x, One(OpRun("Sigmoid"), {x})});
  EXPECT_TRUE(Same(product, One(OpRun("Swish"), {x})));
}

TEST(RotaryTest, HalvesAndPairs) {
  const Tensor x = Floats({1, 1, 1, 4}, {1, 2, 3, 4});
  const Tensor cosine = Floats({2, 2}, {9, 9, 0, 1}), sine = Floats({2, 2}, {9, 9, 1, 0});
  const Tensor position = Ints({1, 1}, {1});
  EXPECT_THAT(Values(One(OpRun("RotaryEmbedding"), {x, cosine, sine, position})),
              ElementsAre(-3, 2, 1, 4));
  EXPECT_THAT(
      Values(One(OpRun("RotaryEmbedding").Int("interleaved", 1), {x, cosine, sine, position})),
      ElementsAre(-2, 1, 3, 4));
  EXPECT_FALSE(OpRun("RotaryEmbedding").Run({x, cosine, sine, Ints({1, 1}, {2})}).ok());
}

}  // namespace
}  // namespace kvlift::exec
