// LIBS: rewrite onnxio
// Which sums of products are one RotaryEmbedding, and which only look like it.
#include "rewrite/recognise/rotations.h"

#include <memory>
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

// Returns the rotations of the text with its changes, each of which must apply.
std::vector<Rotation> RotationsIn(const Changes& changes, IsWidened is_widened) {
  std::string text = kRotation;
  for (const auto& change : changes) {
    EXPECT_GT(absl::StrReplaceAll({change}, &text), 0) << change.first;
  }
  const auto model = ParseModelText(text);
  if (!model.ok()) {
    ADD_FAILURE() << model.status() << text;
    return {};
  }
  EXPECT_TRUE(InferShapes(*model).ok()) << text;
  const auto graph = Graph::Build(std::make_shared<const onnx::ModelProto>(*model));
  if (!graph.ok()) {
    ADD_FAILURE() << graph.status();
    return {};
  }
  return FindRotations(*graph, is_widened);
}

bool Never(const NodeOperand&) { return false; }

int64_t Found(const Changes& changes) {
  return static_cast<int64_t>(RotationsIn(changes, Never).size());
}

TEST(FindRotations, AnySpellingOfIt) {
  EXPECT_EQ(Found({}), 1);
  EXPECT_EQ(Found({{"Add(straight, crossed)", "Add(crossed, straight)"}}), 1);
  EXPECT_EQ(Found({{"Mul(x, cos)", "Mul(cos, x)"}, {"Mul(turned, sin)", "Mul(sin, turned)"}}), 1);
  EXPECT_EQ(Found({{"minus = Neg(second)", "minus = Mul(second, m)"},
                   {"int64[1] two", "float m = {-1.0}, int64[1] two"}}),
            1);
}

TEST(FindRotations, TablesForAllSequences) {
  const Changes one_position = {{"int64[B,S] positions", "int64[1,S] positions"}};
  const auto one = RotationsIn(one_position, Never);
  ASSERT_EQ(one.size(), 1);
  EXPECT_TRUE(one[0].one_for_all);
  const auto is_table = [](const NodeOperand& operand) { return operand.index == 1; };
  const auto widened = RotationsIn(one_position, is_table);
  ASSERT_EQ(widened.size(), 1);
  EXPECT_FALSE(widened[0].one_for_all) << "the result has a table for each";
  const auto each = RotationsIn({}, Never);
  ASSERT_EQ(each.size(), 1);
  EXPECT_FALSE(each[0].one_for_all);
  EXPECT_EQ(each[0].half, 4);
}

TEST(FindRotations, TablesMustRepeatThemselves) {
  EXPECT_EQ(Found({{"pairs = Concat<axis = -1>(angles, angles)",
                    "other = Mul(angles, angles)\n  pairs = Concat<axis = -1>(angles, other)"}}),
            0);
  EXPECT_EQ(Found({{"[1,1,4] rates = {1.0, 0.3, 0.1, 0.03}",
                    "[1,1,8] rates = {1.0, 0.3, 0.1, 0.03, 1.0, 0.3, 0.1, 0.0}"},
                   {"pairs = Concat<axis = -1>(angles, angles)", "pairs = Identity(angles)"}}),
            0);
}

TEST(FindRotations, SumsOfSumsAreLookedAtOnce) {
  std::string sums = "sum_0 = Cos(pairs)\n";
  constexpr int kSums = 200;
  for (int k = 0; k < kSums; ++k) {
    sums += absl::StrCat("  sum_", k + 1, " = Add(sum_", k, ", sum_", k, ")\n");
  }
  EXPECT_EQ(Found({{"cosines = Cos(pairs)",
                    absl::StrCat(sums, "  cosines = Identity(sum_", kSums, ")")}}),
            0)
      << "what lies deep is not known to repeat";
}

TEST(FindRotations, HalvesMustBeExchangedAndTheFirstNegated) {
  EXPECT_EQ(Found({{"Neg(second)", "Neg(first)"}, {"(minus, first)", "(second, minus)"}}), 0);
  EXPECT_EQ(Found({{"(minus, first)", "(first, minus)"}}), 0);
  EXPECT_EQ(Found({{"minus = Neg(second)", "minus = Identity(second)"}}), 0);
  EXPECT_EQ(Found({{"Mul(turned, sin)", "Mul(turned, cos)"}}), 1) << "any table that repeats";
}

TEST(FindRotations, PairsOfNeighboursAreAnotherRotation) {
  EXPECT_EQ(Found({{"first, second = Split<axis = -1, num_outputs = 2>(x)",
                    "first = Slice(x, zero, end, three, two)\n"
                    "  second = Slice(x, one, end, three, two)"},
                   {"int64[1] two",
                    "int64[1] zero = {0}, int64[1] three = {3}, int64[1] end = "
                    "{8}, int64[1] two"}}),
            0);
}

TEST(FindRotations, OtherTypesRoundInOtherPlaces) {
  EXPECT_EQ(
      Found({{"float[B", "float16[B"},
             {"cosines = Cos(pairs)", "cos_32 = Cos(pairs)\n  cosines = Cast<to = 10>(cos_32)"},
             {"sines = Sin(pairs)", "sin_32 = Sin(pairs)\n  sines = Cast<to = 10>(sin_32)"}}),
      0);
}

TEST(FindRotations, TablesPerHeadStay) {
  EXPECT_EQ(Found({{"cos = Unsqueeze(cosines, one)",
                    "cos_1 = Unsqueeze(cosines, one)\n"
                    "  cos = Concat<axis = 1>(cos_1, cos_1)"}}),
            0);
}

TEST(FindRotations, DifferencesOfProductsAreNone) {
  EXPECT_EQ(Found({{"Add(straight", "Sub(straight"}}), 0);
}

}  // namespace
}  // namespace kvlift
