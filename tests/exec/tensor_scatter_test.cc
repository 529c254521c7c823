// LIBS: exec ir
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <numeric>
#include <random>
#include <string>

#include "exec/kernel_harness.h"
#include "ir/types.h"

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

// The elements as numbers of their bits, whatever the type.
std::vector<std::string> Codes(const Tensor& t) {
  const int bits = ElementBits(t.type());
  std::vector<std::string> codes;
  for (int64_t i = 0; i < t.size(); ++i) {
    if (bits == 4) {
      codes.emplace_back(1,
                         static_cast<char>(static_cast<int>(t.data()[i / 2] >> (i % 2 * 4)) & 15));
    } else {
      codes.emplace_back(reinterpret_cast<const char*>(t.data()) + i * bits / 8, bits / 8);
    }
  }
  return codes;
}

// The operator's pseudocode, for any rank and axis.
std::vector<std::string> ByPseudocode(const Tensor& past, const Tensor& update, int64_t axis,
                                      const std::vector<int64_t>& at, bool circular) {
  std::vector<std::string> present = Codes(past);
  const std::vector<std::string> codes = Codes(update);
  const auto rank = static_cast<int64_t>(past.shape().size());
  const int64_t M = past.shape()[axis], S = update.shape()[axis];
  int64_t prefixes = 1, row = 1;
  for (int64_t i = 0; i < axis; ++i) prefixes *= past.shape()[i];
  for (int64_t i = axis + 1; i < rank; ++i) row *= past.shape()[i];
  for (int64_t prefix = 0; prefix < prefixes; ++prefix) {
    const int64_t b = prefix / (prefixes / past.shape()[0]);
    for (int64_t s = 0; s < S; ++s) {
      const int64_t slot = circular ? (at[b] + s) % M : at[b] + s;
      for (int64_t d = 0; d < row; ++d) {
        present[(prefix * M + slot) * row + d] = codes[(prefix * S + s) * row + d];
      }
    }
  }
  return present;
}

TEST(TensorScatterTest, EveryTypeRankAndAxisFollowsThePseudocode) {
  std::mt19937 rng(1);
  const auto in = [&](int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(rng);
  };
  for (const int32_t type : {onnx::TensorProto::UINT8,          onnx::TensorProto::UINT16,
                             onnx::TensorProto::UINT32,         onnx::TensorProto::UINT64,
                             onnx::TensorProto::INT8,           onnx::TensorProto::INT16,
                             onnx::TensorProto::INT32,          onnx::TensorProto::INT64,
                             onnx::TensorProto::BFLOAT16,       onnx::TensorProto::FLOAT16,
                             onnx::TensorProto::FLOAT,          onnx::TensorProto::DOUBLE,
                             onnx::TensorProto::BOOL,           onnx::TensorProto::COMPLEX64,
                             onnx::TensorProto::COMPLEX128,     onnx::TensorProto::FLOAT8E4M3FN,
                             onnx::TensorProto::FLOAT8E4M3FNUZ, onnx::TensorProto::FLOAT8E5M2,
                             onnx::TensorProto::FLOAT8E5M2FNUZ, onnx::TensorProto::UINT4,
                             onnx::TensorProto::INT4,           onnx::TensorProto::FLOAT4E2M1,
                             onnx::TensorProto::FLOAT8E8M0}) {
    for (int round = 0; round < 40; ++round) {
      const int64_t rank = in(2, 5), axis = in(1, rank - 1);
      Shape shape;
      for (int64_t i = 0; i < rank; ++i) shape.push_back(in(1, 6));  // prefixes beyond M too
      Shape news = shape;
      news[axis] = round % 4 == 0 ? shape[axis] : round % 4 == 1 ? 0 : in(0, shape[axis]);
      const bool circular = in(0, 1) != 0;
      Tensor past(type, shape), update(type, news);
      for (const Tensor* t : {&past, &update}) {
        for (int64_t i = 0; i < t->view().bytes(); ++i) t->data()[i] = std::byte(in(0, 255));
      }
      std::vector<int64_t> at;
      for (int64_t b = 0; b < shape[0]; ++b) {
        at.push_back(circular ? in(0, 3 * shape[axis]) : in(0, shape[axis] - news[axis]));
      }
      if (circular && in(0, 3) == 0) at[0] = std::numeric_limits<int64_t>::max() - shape[axis];
      const auto wanted = ByPseudocode(past, update, axis, at, circular);
      OpRun run("TensorScatter", in(24, 28));
      run.Int("axis", in(0, 1) != 0 ? axis : axis - rank);
      if (circular) run.String("mode", "circular");
      if (in(0, 1) != 0) run.InPlace();
      const auto out = run.Run({past, update, Indices(at)});
      ASSERT_TRUE(out.ok()) << out.status();
      ASSERT_EQ(Codes((*out)[0]), wanted) << type << " " << ShapeString(shape) << " axis " << axis;
    }
  }
}

TEST(TensorScatterTest, RefusesTypesThatTheTextDoesNotAllow) {
  for (const int32_t type :
       {onnx::TensorProto::INT2, onnx::TensorProto::UINT2, onnx::TensorProto::FLOAT6E2M3}) {
    EXPECT_FALSE(OpRun("TensorScatter", 28).Run({Tensor(type, {1, 4}), Tensor(type, {1, 1})}).ok());
  }
}

}  // namespace
}  // namespace kvlift::exec
