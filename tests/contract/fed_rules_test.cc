// LIBS: contract
// What the ledger of assumptions says of the numbers that a host feeds, as data.
#include "contract/fed_rules.h"

#include <map>
#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace kvlift {
namespace {

using Kind = FedNumber::Kind;

FedNumber Number(int64_t value) { return {Kind::kInteger, value}; }
FedNumber Element(const std::string& input, FedNumber at) {
  return {Kind::kElement, 0, input, {std::move(at)}};
}
FedNumber Times(FedNumber number, int64_t coefficient) {
  return {Kind::kProduct, 0, {}, {std::move(number), Number(coefficient)}};
}
FedNumber Constant(int64_t value) { return {Kind::kProduct, 0, {}, {Number(value)}}; }
FedNumber Sum(std::vector<FedNumber> args) { return {Kind::kSum, 0, {}, std::move(args)}; }
FedNumber AtMost(FedNumber number) { return {Kind::kIsAtMost, 0, {}, {std::move(number)}}; }
FedNumber Index(int64_t k) { return {Kind::kIndex, k}; }

// Vectors of integers.
class Vectors : public FedInputs {
 public:
  explicit Vectors(std::map<std::string, std::vector<int64_t>> values, bool has_past = true)
      : values_(std::move(values)), has_past_(has_past) {
    for (const auto& [name, value] : values_) {
      shapes_[name] = {static_cast<int64_t>(value.size())};
    }
  }
  const std::vector<int64_t>* ShapeOf(const std::string& input) const override {
    const auto it = shapes_.find(input);
    return it == shapes_.end() ? nullptr : &it->second;
  }
  int64_t ElementOf(const std::string& input, int64_t place) const override {
    return values_.at(input)[static_cast<size_t>(place)];
  }
  bool HasPast() const override { return has_past_; }

 private:
  const std::map<std::string, std::vector<int64_t>> values_;
  const bool has_past_;
  std::map<std::string, std::vector<int64_t>> shapes_;
};

FedRules Rules(const FedNumber& holds) {
  FedRules rules;
  rules.conditions = {{holds, "the condition", std::nullopt}};
  return rules;
}

// 2 * w[i0] - 7 <= 0, so that w[i0] <= 3.
FedNumber TwiceAtMostSeven() {
  return AtMost(Sum({Times(Element("w", Index(0)), 2), Constant(-7)}));
}

TEST(FedRules, HoldForEachElement) {
  const FedRules rules = Rules(TwiceAtMostSeven());
  EXPECT_EQ(rules.Broken(Vectors({{"w", {3, -5, 0}}})), "");
  EXPECT_EQ(rules.Broken(Vectors({{"w", {3, 4, 0}}})), "the condition");
  EXPECT_EQ(rules.Broken(Vectors({{"w", std::vector<int64_t>()}})), "");
  EXPECT_EQ(rules.Broken(Vectors({{"other", {9}}})), "") << "the step feeds no w";
}

// w[w[i0]] <= 3: places outside of w are left out.
TEST(FedRules, ReadElementsThatExist) {
  const FedNumber inner = Element("w", Index(0));
  const FedRules rules = Rules(AtMost(Sum({Times(Element("w", inner), 1), Constant(-3)})));
  EXPECT_EQ(rules.Broken(Vectors({{"w", {1, 0, 9}}})), "");
  EXPECT_EQ(rules.Broken(Vectors({{"w", {2, 0, 9}}})), "the condition");
}

TEST(FedRules, OfStepsWithAPast) {
  FedRules rules = Rules(TwiceAtMostSeven());
  rules.conditions[0].with_past = true;
  EXPECT_EQ(rules.Broken(Vectors({{"w", {4}}}, true)), "the condition");
  EXPECT_EQ(rules.Broken(Vectors({{"w", {4}}}, false)), "");
}

TEST(FedRules, CompareSizes) {
  const FedNumber size_of_w{Kind::kSize, 0, "w"}, size_of_x{Kind::kSize, 0, "x"};
  const FedNumber apart = Sum({Times(size_of_w, 1), Times(size_of_x, -1)});
  const FedRules rules = Rules({Kind::kIsZero, 0, {}, {apart}});
  EXPECT_EQ(rules.Broken(Vectors({{"w", {1, 2}}, {"x", {3, 4}}})), "");
  EXPECT_EQ(rules.Broken(Vectors({{"w", {1, 2}}, {"x", {3}}})), "the condition");
}

TEST(FedRules, BoundElements) {
  FedRules rules = Rules(TwiceAtMostSeven());
  EXPECT_EQ(rules.BoundsOf("w").most, 3);
  EXPECT_FALSE(rules.BoundsOf("w").least.has_value());
  // -2 * w[i0] - 7 <= 0, so that w[i0] >= -3.
  rules.conditions.push_back(
      {AtMost(Sum({Times(Element("w", Index(0)), -2), Constant(-7)})), "more", std::nullopt});
  EXPECT_EQ(rules.BoundsOf("w").least, -3);
  EXPECT_FALSE(rules.BoundsOf("x").most.has_value());
  EXPECT_EQ(Rules(AtMost(Element("w", Number(0)))).BoundsOf("w").most, 0);
  // The bound of an element that another one chooses depends on that one.
  EXPECT_FALSE(Rules(AtMost(Element("w", Element("w", Index(0))))).BoundsOf("w").most.has_value());
}

}  // namespace
}  // namespace kvlift
