// The bounds within which two tensors are taken for equal.

#include "verify/report/compare.h"

#include <cstdint>
#include <vector>

#include "exec/memory/tensor.h"
#include "gtest/gtest.h"
#include "onnx/onnx_pb.h"

namespace kvlift {
namespace {

using onnx::TensorProto;

template <typename T>
exec::Tensor Made(int32_t type, const std::vector<T>& numbers) {
  return exec::Tensor::From<T>(type, {static_cast<int64_t>(numbers.size())}, numbers);
}

// `k * 0.3 * 0.7` of one graph is `k * 0.21` in another.
TEST(CompareTest, NumbersThatWereComputedInAnotherOrderAreEqual) {
  std::vector<float> ones, others;
  for (int k = 1; k < 100; ++k) {
    const float number = 0.137f * static_cast<float>(k);
    ones.push_back(number * 0.3f * 0.7f);
    others.push_back(number * 0.21f);
  }
  const exec::Tensor one = Made(TensorProto::FLOAT, ones);
  const exec::Tensor exact = exec::Tensor::Zeros(TensorProto::DOUBLE, one.shape());
  const Comparison found =
      Compare(one.view(), Made(TensorProto::FLOAT, others).view(), 10, exact.view());
  EXPECT_FALSE(found.bitwise);
  EXPECT_FALSE(found.difference.has_value());
}

TEST(CompareTest, NumbersOfAnotherScaleDiffer) {
  const exec::Tensor one = Made<float>(TensorProto::FLOAT, {1, 2, 3});
  const exec::Tensor other = Made<float>(TensorProto::FLOAT, {1, 2.00001f, 3});
  const exec::Tensor exact = exec::Tensor::Zeros(TensorProto::DOUBLE, one.shape());
  const Comparison found = Compare(one.view(), other.view(), 10, exact.view());
  ASSERT_TRUE(found.difference.has_value());
  EXPECT_EQ(found.difference->element, std::vector<int64_t>{1});
}

TEST(CompareTest, IntegersAreExact) {
  const exec::Tensor one = Made<int64_t>(TensorProto::INT64, {int64_t{1} << 40});
  const exec::Tensor other = Made<int64_t>(TensorProto::INT64, {(int64_t{1} << 40) + 1});
  EXPECT_TRUE(Compare(one.view(), other.view(), 10).difference.has_value());
}

}  // namespace
}  // namespace kvlift
