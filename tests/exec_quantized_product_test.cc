// LIBS: exec
// QLinearMatMul beyond the official cases: an output scale per row, float8, scales of 0.
#include <vector>

#include "exec/small_types.h"
#include "exec_kernel_harness.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace kvlift::exec {
namespace {

using onnx::TensorProto;
using ::testing::ElementsAre;

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

}  // namespace
}  // namespace kvlift::exec
