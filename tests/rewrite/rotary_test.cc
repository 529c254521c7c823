// LIBS: rewrite onnxio
// Which sums of products are one RotaryEmbedding, and which only look like it.
#include "rewrite/emit/rotary.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "gtest/gtest.h"
#include "onnxio/model/model.h"

namespace kvlift {
namespace {

constexpr char kRotation[] = R"(
<ir_version: 10, opset_import: ["" : 24]>
rotate (float[B,2,S,8] x, int64[B,S] positions) => (float[B,2,S,8] y)
<float[1,1,4] rates = {1.0, 0.3, 0.1, 0.03}, int64[1] two = {2}, int64[1] one = {1}>
{
  ids = Unsqueeze(positions, two)
  floats = Cast<to = 1>(ids)
  angles = Mul(floats, rates)
  pairs = Concat<axis = -1>(angles, angles)
  cosines = Cos(pairs)
  sines = Sin(pairs)
  cos = Unsqueeze(cosines, one)
  sin = Unsqueeze(sines, one)
  first, second = Split<axis = -1, num_outputs = 2>(x)
  minus = Neg(second)
  turned = Concat<axis = -1>(minus, first)
  straight = Mul(x, cos)
  crossed = Mul(turned, sin)
  y = Add(straight, crossed)
}
)";

using Changes = std::vector<std::pair<std::string, std::string>>;

// How many rotations there are in the text with its changes, each of which must apply.
int64_t Fused(const Changes& changes) {
  std::string text = kRotation;
  for (const auto& change : changes) {
    EXPECT_GT(absl::StrReplaceAll({change}, &text), 0) << change.first;
  }
  const auto model = ParseModelText(text);
  if (!model.ok()) {
    ADD_FAILURE() << model.status() << text;
    return -1;
  }
  EXPECT_TRUE(InferShapes(*model).ok()) << text;
  const auto fused = FuseRotations(*model, {});
  if (!fused.ok()) {
    ADD_FAILURE() << fused.status();
    return -1;
  }
  EXPECT_TRUE(CheckModel(*fused).ok());
  EXPECT_TRUE(InferShapes(*fused).ok());
  return std::count_if(
      fused->graph().node().begin(), fused->graph().node().end(),
      [](const onnx::NodeProto& node) { return node.op_type() == "RotaryEmbedding"; });
}

TEST(FuseRotations, AnySpellingOfIt) {
  EXPECT_EQ(Fused({}), 1);
  EXPECT_EQ(Fused({{"Add(straight, crossed)", "Add(crossed, straight)"}}), 1);
  EXPECT_EQ(Fused({{"Mul(x, cos)", "Mul(cos, x)"}, {"Mul(turned, sin)", "Mul(sin, turned)"}}), 1);
  EXPECT_EQ(Fused({{"minus = Neg(second)", "minus = Mul(second, m)"},
                   {"int64[1] two", "float m = {-1.0}, int64[1] two"}}),
            1);
}

TEST(FuseRotations, TablesForAllSequences) {
  EXPECT_EQ(Fused({{"int64[B,S] positions", "int64[1,S] positions"}}), 1);
}

TEST(FuseRotations, TablesMustRepeatThemselves) {
  EXPECT_EQ(Fused({{"pairs = Concat<axis = -1>(angles, angles)",
                    "other = Mul(angles, angles)\n  pairs = Concat<axis = -1>(angles, other)"}}),
            0);
  EXPECT_EQ(Fused({{"[1,1,4] rates = {1.0, 0.3, 0.1, 0.03}",
                    "[1,1,8] rates = {1.0, 0.3, 0.1, 0.03, 1.0, 0.3, 0.1, 0.0}"},
                   {"pairs = Concat<axis = -1>(angles, angles)", "pairs = Identity(angles)"}}),
            0);
}

TEST(FuseRotations, SumsOfSumsAreLookedAtOnce) {
  std::string sums = "sum_0 = Cos(pairs)\n";
  constexpr int kSums = 200;
  for (int k = 0; k < kSums; ++k) {
    sums += absl::StrCat("  sum_", k + 1, " = Add(sum_", k, ", sum_", k, ")\n");
  }
  EXPECT_EQ(Fused({{"cosines = Cos(pairs)",
                    absl::StrCat(sums, "  cosines = Identity(sum_", kSums, ")")}}),
            0)
      << "what lies deep is not known to repeat";
}

TEST(FuseRotations, HalvesMustBeExchangedAndTheFirstNegated) {
  EXPECT_EQ(Fused({{"Neg(second)", "Neg(first)"}, {"(minus, first)", "(second, minus)"}}), 0);
  EXPECT_EQ(Fused({{"(minus, first)", "(first, minus)"}}), 0);
  EXPECT_EQ(Fused({{"minus = Neg(second)", "minus = Identity(second)"}}), 0);
  EXPECT_EQ(Fused({{"Mul(turned, sin)", "Mul(turned, cos)"}}), 1) << "any table that repeats";
}

TEST(FuseRotations, PairsOfNeighboursAreAnotherRotation) {
  EXPECT_EQ(Fused({{"first, second = Split<axis = -1, num_outputs = 2>(x)",
                    "first = Slice(x, zero, end, three, two)\n"
                    "  second = Slice(x, one, end, three, two)"},
                   {"int64[1] two",
                    "int64[1] zero = {0}, int64[1] three = {3}, int64[1] end = "
                    "{8}, int64[1] two"}}),
            0);
}

TEST(FuseRotations, OtherTypesRoundInOtherPlaces) {
  EXPECT_EQ(
      Fused({{"float[B", "float16[B"},
             {"cosines = Cos(pairs)", "cos_32 = Cos(pairs)\n  cosines = Cast<to = 10>(cos_32)"},
             {"sines = Sin(pairs)", "sin_32 = Sin(pairs)\n  sines = Cast<to = 10>(sin_32)"}}),
      0);
}

TEST(FuseRotations, TablesPerHeadStay) {
  EXPECT_EQ(Fused({{"cos = Unsqueeze(cosines, one)",
                    "cos_1 = Unsqueeze(cosines, one)\n"
                    "  cos = Concat<axis = 1>(cos_1, cos_1)"}}),
            0);
}

TEST(FuseRotations, ModelsWithoutAnyAreAsTheyWere) {
  const auto model = ParseModelText(absl::StrReplaceAll(kRotation, {{"Add(", "Sub("}}));
  ASSERT_TRUE(model.ok());
  const auto fused = FuseRotations(*model, {});
  ASSERT_TRUE(fused.ok());
  EXPECT_EQ(fused->SerializeAsString(), model->SerializeAsString());
}

}  // namespace
}  // namespace kvlift
