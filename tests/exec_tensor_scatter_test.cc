// LIBS: exec
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <numeric>

#include "exec_kernel_harness.h"

namespace kvlift::exec {
namespace {

using ::testing::ElementsAre;
using ::testing::ElementsAreArray;
using ::testing::HasSubstr;

constexpr int32_t kFloat = onnx::TensorProto::FLOAT;
constexpr int32_t kInt64 = onnx::TensorProto::INT64;

Tensor Floats(Shape shape, const std::vector<float>& values) {
  return Tensor::From<float>(kFloat, std::move(shape), values);
}
Tensor Indices(const std::vector<int64_t>& values) {
  return Tensor::From<int64_t>(kInt64, {static_cast<int64_t>(values.size())}, values);
}
Tensor Counting(Shape shape, float first) {
  std::vector<float> values(static_cast<size_t>(NumElements(shape)));
  std::iota(values.begin(), values.end(), first);
  return Floats(std::move(shape), values);
}
std::vector<float> Values(const Tensor& t) {
  return {t.span<float>().begin(), t.span<float>().end()};
}

// The pseudocode of the operator, for a cache [B, H, M, D].
std::vector<float> Reference(const Tensor& past, const Tensor& update,
                             const std::vector<int64_t>& at, bool circular) {
  const int64_t B = past.shape()[0], H = past.shape()[1], M = past.shape()[2], D = past.shape()[3];
  const int64_t S = update.shape()[2];
  std::vector<float> out = Values(past);
  for (int64_t b = 0; b < B; ++b) {
    for (int64_t h = 0; h < H; ++h) {
      for (int64_t s = 0; s < S; ++s) {
        const int64_t slot = circular ? (at[b] + s) % M : at[b] + s;
        for (int64_t d = 0; d < D; ++d) {
          out[((b * H + h) * M + slot) * D + d] =
              update.span<float>()[((b * H + h) * S + s) * D + d];
        }
      }
    }
  }
  return out;
}

TEST(TensorScatterTest, LinearWritesEachSequenceAtItsIndex) {
  const auto out = OpRun("TensorScatter")
                       .Run({Floats({2, 3, 1}, {1, 2, 3, 4, 5, 6}), Floats({2, 1, 1}, {-1, -2}),
                             Indices({2, 0})});
  ASSERT_TRUE(out.ok()) << out.status();
  EXPECT_THAT(Values((*out)[0]), ElementsAre(1, 2, -1, -2, 5, 6));
}

TEST(TensorScatterTest, WithoutIndicesWritesAtZero) {
  const auto out =
      OpRun("TensorScatter").Run({Counting({1, 1, 3, 2}, 1), Floats({1, 1, 1, 2}, {8, 9})});
  ASSERT_TRUE(out.ok()) << out.status();
  EXPECT_THAT(Values((*out)[0]), ElementsAre(8, 9, 3, 4, 5, 6));
}

TEST(TensorScatterTest, LeavesThePastAloneUnlessInPlace) {
  const Tensor past = Counting({1, 1, 2, 1}, 1);
  const Tensor update = Floats({1, 1, 1, 1}, {9});
  ASSERT_TRUE(OpRun("TensorScatter").Run({past, update, Indices({1})}).ok());
  EXPECT_THAT(Values(past), ElementsAre(1, 2));
  ASSERT_TRUE(OpRun("TensorScatter").InPlace().Run({past, update, Indices({1})}).ok());
  EXPECT_THAT(Values(past), ElementsAre(1, 9));
}

TEST(TensorScatterTest, CircularWrapsWithMoreHeadsAndSequencesThanSlots) {
  const Tensor past = Counting({6, 5, 4, 3}, 0);
  const Tensor update = Counting({6, 5, 3, 3}, -1000);
  const std::vector<int64_t> at = {3, 0, 1, 2, 7, 1000001};
  for (bool in_place : {false, true}) {
    OpRun run("TensorScatter");
    run.String("mode", "circular");
    if (in_place) run.InPlace();
    const auto expected = Reference(past, update, at, true);
    const auto out = run.Run({past.Clone(), update, Indices(at)});
    ASSERT_TRUE(out.ok()) << out.status();
    EXPECT_THAT(Values((*out)[0]), ElementsAreArray(expected));
  }
}

TEST(TensorScatterTest, LinearMatchesReferenceAndFillsTheWholeCache) {
  for (int64_t length : {0, 1, 3, 5}) {
    const Tensor past = Counting({3, 2, 5, 4}, 0);
    const Tensor update = Counting({3, 2, length, 4}, -500);
    const std::vector<int64_t> at = {5 - length, 0, (5 - length) / 2};
    const auto out = OpRun("TensorScatter").Run({past, update, Indices(at)});
    ASSERT_TRUE(out.ok()) << out.status();
    EXPECT_THAT(Values((*out)[0]), ElementsAreArray(Reference(past, update, at, false)));
  }
}

TEST(TensorScatterTest, AnyAxisButTheBatch) {
  const auto axis1 = OpRun("TensorScatter")
                         .Int("axis", 1)
                         .Run({Counting({1, 3, 2}, 0), Floats({1, 1, 2}, {8, 9}), Indices({1})});
  ASSERT_TRUE(axis1.ok()) << axis1.status();
  EXPECT_THAT(Values((*axis1)[0]), ElementsAre(0, 1, 8, 9, 4, 5));
  const auto last = OpRun("TensorScatter")
                        .Int("axis", -1)
                        .Run({Counting({2, 3}, 0), Floats({2, 1}, {8, 9}), Indices({2, 0})});
  ASSERT_TRUE(last.ok()) << last.status();
  EXPECT_THAT(Values((*last)[0]), ElementsAre(0, 1, 8, 9, 4, 5));
  for (int64_t axis : {0, -2, 2, -3}) {
    EXPECT_FALSE(OpRun("TensorScatter")
                     .Int("axis", axis)
                     .Run({Counting({2, 3}, 0), Floats({2, 1}, {8, 9}), Indices({2, 0})})
                     .ok());
  }
}

TEST(TensorScatterTest, OneBadIndexLeavesAllMemoryUntouched) {
  constexpr int64_t kHuge = std::numeric_limits<int64_t>::max();
  for (const bool circular : {false, true}) {
    for (const int64_t bad : {int64_t{-1}, int64_t{4}, int64_t{3}, kHuge}) {
      if (circular && bad >= 0) continue;
      const Tensor past = Counting({2, 1, 4, 1}, 0);
      const Tensor before = past.Clone();
      const auto out = OpRun("TensorScatter")
                           .String("mode", circular ? "circular" : "linear")
                           .InPlace()
                           .Run({past, Counting({2, 1, 2, 1}, 100), Indices({0, bad})});
      EXPECT_EQ(out.status().code(), absl::StatusCode::kInvalidArgument) << bad;
      EXPECT_THAT(std::string(out.status().message()), HasSubstr("write_indices[1]"));
      EXPECT_EQ(Values(past), Values(before)) << bad;
    }
  }
}

TEST(TensorScatterTest, RefusesWhatDoesNotFit) {
  const OpRun run("TensorScatter");
  EXPECT_FALSE(run.Run({Counting({1, 1, 2, 1}, 0), Counting({1, 1, 3, 1}, 0)}).ok());
  EXPECT_FALSE(run.Run({Counting({1, 1, 2, 1}, 0), Counting({1, 2, 1, 1}, 0)}).ok());
  EXPECT_FALSE(
      run.Run({Counting({1, 1, 2, 1}, 0), Counting({1, 1, 1, 1}, 0), Indices({0, 0})}).ok());
}

TEST(TensorScatterTest, EveryWidthOfElement) {
  for (int32_t type : {onnx::TensorProto::INT8, onnx::TensorProto::FLOAT16,
                       onnx::TensorProto::DOUBLE, onnx::TensorProto::INT4}) {
    Tensor past(type, {1, 1, 4, 2}), update(type, {1, 1, 1, 2});
    const int64_t past_bytes = past.view().bytes(), row = update.view().bytes();
    std::memset(past.data(), 0x11, static_cast<size_t>(past_bytes));
    std::memset(update.data(), 0x77, static_cast<size_t>(row));
    const auto out = OpRun("TensorScatter").Run({past, update, Indices({2})});
    ASSERT_TRUE(out.ok()) << out.status();
    for (int64_t i = 0; i < past_bytes; ++i) {
      const bool written = i >= 2 * row && i < 3 * row;
      EXPECT_EQ((*out)[0].data()[i], std::byte(written ? 0x77 : 0x11)) << type << " " << i;
    }
  }
}

TEST(TensorScatterTest, PackedRowsThatShareBytes) {
  Tensor past(onnx::TensorProto::UINT4, {1, 1, 3, 1}),
      update(onnx::TensorProto::UINT4, {1, 1, 1, 1});
  past.data()[0] = std::byte{0x21};
  past.data()[1] = std::byte{0x03};
  update.data()[0] = std::byte{0x0F};
  const auto out = OpRun("TensorScatter").Run({past, update, Indices({1})});
  ASSERT_TRUE(out.ok()) << out.status();
  EXPECT_EQ((*out)[0].data()[0], std::byte{0xF1});
  EXPECT_EQ((*out)[0].data()[1] & std::byte{0x0F}, std::byte{0x03});
}

}  // namespace
}  // namespace kvlift::exec
