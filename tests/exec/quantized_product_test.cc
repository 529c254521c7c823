// LIBS: exec
// QLinearMatMul beyond the official cases: an output scale per row, float8, scales of 0; products
// of bytes of many shapes.
#include <vector>

#include "exec/kernel_harness.h"
#include "exec/kernels/common/gemm_isa.h"
#include "exec/memory/small_types.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace kvlift::exec {
namespace {

using onnx::TensorProto;
using ::testing::ElementsAre;
using ::testing::ElementsAreArray;

Tensor Bytes(Shape shape, const std::vector<int8_t>& values) {
  return Tensor::From<int8_t>(TensorProto::INT8, std::move(shape), values);
}
Tensor Floats(Shape shape, const std::vector<float>& values) {
  return Tensor::From<float>(TensorProto::FLOAT, std::move(shape), values);
}
Tensor Small(Shape shape, const std::vector<float>& values) {
  Tensor t(TensorProto::FLOAT8E4M3FN, std::move(shape));
  for (size_t i = 0; i < values.size(); ++i) {
    SetSmallFloat(t.view(), static_cast<int64_t>(i), values[i], true);
  }
  return t;
}

TEST(QLinearMatMulTest, ScaleAndZeroPointOfTheOutputByRow) {
  const auto y = OpRun("QLinearMatMul", 21)
                     .Run({Bytes({2, 2}, {1, 2, 3, 4}), Floats({}, {0.5f}), Bytes({}, {0}),
                           Bytes({2, 1}, {10, 20}), Floats({}, {1}), Bytes({}, {0}),
                           Floats({2}, {1, 5}), Bytes({2}, {0, 7})});
  ASSERT_TRUE(y.ok()) << y.status();
  EXPECT_THAT((*y)[0].span<int8_t>(), ElementsAre(25, 18));
}

TEST(QLinearMatMulTest, FloatsOfEightBits) {
  const auto y = OpRun("QLinearMatMul", 21)
                     .Run({Small({1, 2}, {1.5f, 2}), Floats({}, {2}), Small({}, {0.5f}),
                           Small({2, 2}, {1, 100, 3, 400}), Floats({}, {1}), Small({}, {0}),
                           Floats({}, {0.5f}), Small({}, {1})});
  ASSERT_TRUE(y.ok()) << y.status();
  EXPECT_EQ(SmallFloatAt((*y)[0].view(), 0), 24);  // 23, half way from 22, to the even one
  EXPECT_EQ(SmallFloatAt((*y)[0].view(), 1), 448);
}

TEST(QLinearMatMulTest, AScaleOfZeroHasAResult) {
  const auto y = OpRun("QLinearMatMul", 21)
                     .Run({Bytes({1, 1}, {0}), Floats({}, {1}), Bytes({}, {0}), Bytes({1, 1}, {1}),
                           Floats({}, {1}), Bytes({}, {0}), Floats({}, {0}), Bytes({}, {0})});
  ASSERT_TRUE(y.ok()) << y.status();
  EXPECT_THAT((*y)[0].span<int8_t>(), ElementsAre(0));
}

TEST(QLinearMatMulTest, RefusesMixedKinds) {
  EXPECT_FALSE(OpRun("QLinearMatMul", 21)
                   .Run({Bytes({1, 1}, {0}), Floats({}, {1}), Bytes({}, {0}), Small({1, 1}, {1}),
                         Floats({}, {1}), Small({}, {0}), Floats({}, {1}), Small({}, {0})})
                   .ok());
}

struct ByteCase {
  int64_t m, k, n;
  bool a_signed, b_signed, by_line;
};

// [0, count) of a fixed sequence of bytes.
std::vector<int> Sequence(int64_t count, bool is_signed, uint32_t seed) {
  std::vector<int> values;
  for (int64_t i = 0; i < count; ++i) {
    seed = seed * 1664525u + 1013904223u;
    const int byte = i % 7 == 0 ? 255 : static_cast<int>(seed >> 24);
    values.push_back(is_signed ? byte - 128 : byte);
  }
  return values;
}
Tensor ByteTensor(Shape shape, const std::vector<int>& values, bool is_signed) {
  Tensor t(is_signed ? TensorProto::INT8 : TensorProto::UINT8, std::move(shape));
  for (size_t i = 0; i < values.size(); ++i) t.span<uint8_t>()[i] = static_cast<uint8_t>(values[i]);
  return t;
}

class ByteProductTest : public ::testing::TestWithParam<ByteCase> {};

TEST_P(ByteProductTest, IsExactForAnyNumberOfThreads) {
  const ByteCase c = GetParam();
  const std::vector<int> a = Sequence(c.m * c.k, c.a_signed, 1),
                         b = Sequence(c.k * c.n, c.b_signed, 2),
                         za = Sequence(c.by_line ? c.m : 1, c.a_signed, 3),
                         zb = Sequence(c.by_line ? c.n : 1, c.b_signed, 4);
  std::vector<int32_t> expected;
  for (int64_t i = 0; i < c.m; ++i) {
    for (int64_t j = 0; j < c.n; ++j) {
      int64_t sum = 0;
      for (int64_t k = 0; k < c.k; ++k) {
        sum += (a[i * c.k + k] - za[c.by_line ? i : 0]) * (b[k * c.n + j] - zb[c.by_line ? j : 0]);
      }
      expected.push_back(static_cast<int32_t>(sum));
    }
  }
  const Shape by_row = c.by_line ? Shape{c.m} : Shape{},
              by_column = c.by_line ? Shape{c.n} : Shape{};
  for (const int threads : {1, 3}) {
    const auto y =
        OpRun("MatMulInteger", 10)
            .Threads(threads)
            .Run({ByteTensor({c.m, c.k}, a, c.a_signed), ByteTensor({c.k, c.n}, b, c.b_signed),
                  ByteTensor(by_row, za, c.a_signed), ByteTensor(by_column, zb, c.b_signed)});
    ASSERT_TRUE(y.ok()) << y.status();
    EXPECT_THAT((*y)[0].span<int32_t>(), ElementsAreArray(expected)) << threads;
  }
}

INSTANTIATE_TEST_SUITE_P(Shapes, ByteProductTest,
                         ::testing::Values(ByteCase{1, 1, 1, false, false, false},
                                           ByteCase{1, 64, 48, false, true, true},
                                           ByteCase{3, 31, 17, true, false, true},
                                           ByteCase{2, 9, 530, true, true, true},
                                           ByteCase{40, 257, 1040, false, true, true},
                                           ByteCase{1, 32768, 33, false, false, false},
                                           ByteCase{1, 32770, 5, true, true, false}));

// The same primitive in every instruction set this processor has.
TEST(IntegerBlockTest, InstructionSetsAgree) {
  constexpr int64_t kK = 37, kN = 75, kM = 3, kPairs = (kK + 1) / 2;
  const std::vector<int> b = Sequence(kK * kN, true, 5);
  const Tensor bytes = ByteTensor({kK, kN}, b, true);
  std::vector<int32_t> pairs, zeros(kN, 0x00030003);
  for (int64_t i = 0; i < kM * kPairs; ++i) {
    const int32_t high = (i + 1) % kPairs == 0 ? 0 : static_cast<int32_t>(i % 255) - 127;
    pairs.push_back(static_cast<int32_t>(static_cast<uint32_t>(high) << 16) | ((200 - i) & 0xFFFF));
  }
  const auto product = [&](const IsaTable& isa) {
    std::vector<int32_t> c(kM * kN, 1);
    IntegerBlock block;
    block.m = kM;
    block.n = block.ldb = block.ldc = kN;
    block.k = kK;
    block.pairs = block.lda = kPairs;
    block.a = pairs.data();
    block.b = bytes.data();
    block.b_signed = true;
    block.zeros = zeros.data();
    block.c = c.data();
    isa.integers(block);
    return c;
  };
  const std::vector<int32_t> expected = product(GenericIsa());
  EXPECT_EQ(product(Isa()), expected);
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && Avx2Isa() != nullptr) {
    EXPECT_EQ(product(*Avx2Isa()), expected);
  }
#endif
}

}  // namespace
}  // namespace kvlift::exec
