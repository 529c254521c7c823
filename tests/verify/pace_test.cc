// LIBS: verify
// The line of progress of a verdict: which part runs, and about how long the rest takes.
#include "verify/report/pace.h"

#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace kvlift {
namespace {

TEST(Pace, EstimatesTheRestFromThePartsBefore) {
  std::vector<std::string> said;
  double now = 100;
  Pace pace([&](const std::string& text) { said.push_back(text); }, [&] { return now; });
  pace.Begin("mutant", 4);
  pace.Next("scale / 2");
  now += 3;
  pace.Next();
  now += 5;
  pace.Next("window + 1");
  now += 1;
  pace.Next("mask dropped");
  EXPECT_EQ(said, (std::vector<std::string>{
                      "mutant 1 of 4 (scale / 2)",
                      "mutant 2 of 4",
                      "mutant 3 of 4 (window + 1), about 8 s left of these",
                      "mutant 4 of 4 (mask dropped), about 3 s left of these",
                  }));
}

TEST(Pace, ForgetsThePartsOfAnotherKind) {
  std::string said;
  double now = 0;
  Pace pace([&](std::string text) { said = std::move(text); }, [&] { return now; });
  pace.Begin("plan", 3);
  for (int k = 0; k < 3; ++k, now += 60) pace.Next();
  EXPECT_EQ(said, "plan 3 of 3, about 60 s left of these");
  pace.Begin("mutant", 2);
  pace.Next();
  EXPECT_EQ(said, "mutant 1 of 2");
}

TEST(Pace, SaysNoEstimateOfMoments) {
  std::string said;
  double now = 0;
  Pace pace([&](std::string text) { said = std::move(text); }, [&] { return now; });
  pace.Begin("plan", 5);
  for (int k = 0; k < 4; ++k, now += 0.1) pace.Next();
  EXPECT_EQ(said, "plan 4 of 5");
}

TEST(Pace, MayHaveNobodyToTell) {
  Pace pace;
  pace.Begin("plan", 1);
  pace.Next();
}

}  // namespace
}  // namespace kvlift
