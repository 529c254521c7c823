// LIBS: proof rewrites verify
// SRCS: support/case_edits.cc support/case_file.cc support/models.cc
// What the proof refutes, and differences that it leaves open since they need not show.
#include <string>

#include "support/proof_pair.h"

namespace kvlift {
namespace {

// A bound that is never reached may be any number: the fact is open, and not refuted.
TEST(Refuted, NoNumberThatMayBeIgnored) {
  const auto status = [](const std::string& end, const std::string& x, const std::string& z) {
    const Proof proof = ProofOfPair(
        kCase,
        {{kLastOfSource, "y0 = Reshape(context4, y_shape)\n" + end},
         {kConstantsOfSource, std::string(kConstantsOfSource) + " float bound = {" + x + "},"}},
        {{kLast, "y0 = Reshape (context4, y_shape)\n" + end},
         {kConstants, std::string(kConstants) + " float bound = {" + z + "},"}});
    for (const ProofFact& fact : proof.facts) {
      if (fact.about == "y" && fact.text.starts_with("outside")) return fact.status;
    }
    return FactStatus::kProved;
  };
  const std::string floor = "s = Sigmoid (y0)\ny = Max (s, bound)";
  EXPECT_EQ(status(floor, "-1", "-1"), FactStatus::kGiven);
  EXPECT_EQ(status(floor, "-1", "-2"), FactStatus::kOpen);
  EXPECT_EQ(status("n = IsNaN (y0)\ny = Where (n, bound, y0)", "0", "1"), FactStatus::kOpen);
  EXPECT_EQ(status("y = Mul (y0, bound)", "-1", "-2"), FactStatus::kRefuted);
}

// Two numbers that differ may cancel each other, and a step function may hide that one does.
TEST(Refuted, NoNumberWhoseChangeMayEndOnTheWay) {
  const auto status = [](const std::string& end, const std::string& before,
                         const std::string& after) {
    const Proof proof =
        ProofOfPair(kCase,
                    {{kLastOfSource, "y0 = Reshape(context4, y_shape)\n" + end},
                     {kConstantsOfSource, std::string(kConstantsOfSource) + before}},
                    {{kLast, "y0 = Reshape (context4, y_shape)\n" + end},
                     {kConstants, std::string(kConstants) + after}});
    for (const ProofFact& fact : proof.facts) {
      if (fact.about == "y" && fact.text.starts_with("outside")) return fact.status;
    }
    return FactStatus::kProved;
  };
  const auto two = [](const std::string& x, const std::string& z) {
    return " float first = {" + x + "}, float second = {" + z + "},";
  };
  const std::string between = "a = Mul (y0, first)\nb = Tanh (a)\ny = Mul (b, second)";
  EXPECT_EQ(status(between, two("2", "0.5"), two("2", "0.5")), FactStatus::kGiven);
  EXPECT_EQ(status(between, two("2", "0.5"), two("4", "0.25")), FactStatus::kOpen);
  EXPECT_EQ(status(between, two("2", "0.5"), two("4", "0.5")), FactStatus::kRefuted);
  EXPECT_EQ(status(between, two("2", "0.5"), two("2", "0.25")), FactStatus::kRefuted);
  // Numbers that are added on both sides of other operators do not cancel.
  const std::string added = "a = Add (y0, first)\nb = Tanh (a)\ny = Add (b, second)";
  EXPECT_EQ(status(added, two("2", "0.5"), two("4", "0.25")), FactStatus::kRefuted);
  const std::string steps = "a = Mul (y0, first)\nb = Floor (a)\ny = Mul (b, second)";
  EXPECT_EQ(status(steps, two("2", "0.5"), two("2.1", "0.5")), FactStatus::kOpen);
  EXPECT_EQ(status("a = Mul (y0, first)\nb = Floor (a)\nc = Mul (b, second)\ny = Add (a, c)",
                   two("2", "0.5"), two("2.1", "0.5")),
            FactStatus::kRefuted);
  const std::string row = "r = Gather (table, chosen)\ny = Mul (y0, r)";
  // The proof reads no tables of this size.
  const auto table = [](const std::string& last) {
    std::string numbers;
    for (int k = 0; k < 5000; ++k) numbers += "1, ";
    return " float[5001] table = {" + numbers + last + "}, int64 chosen = {1},";
  };
  EXPECT_EQ(status(row, table("3"), table("3")), FactStatus::kGiven);
  EXPECT_EQ(status(row, table("3"), table("4")), FactStatus::kOpen);
}

// An axis of one element makes no difference to a maximum.
TEST(Refuted, NoReductionOverOneElement) {
  const auto status = [](const std::string& axes) {
    const auto end = [](const std::string& over) {
      return "y0 = Reshape(context4, y_shape)\nu = Unsqueeze (y0, zeroth)\n"
             "over = Constant <value = int64[" +
             over + "> ()\nm = ReduceMax <keepdims = 1> (u, over)\ny = Squeeze (m, zeroth)";
    };
    const std::string zeroth = " int64[1] zeroth = {0},";
    const Proof proof =
        ProofOfPair(kCase,
                    {{kLastOfSource, end("1] {2}")},
                     {kConstantsOfSource, std::string(kConstantsOfSource) + zeroth}},
                    {{kLast, end(axes)}, {kConstants, std::string(kConstants) + zeroth}});
    for (const ProofFact& fact : proof.facts) {
      if (fact.about == "y" && fact.text.starts_with("outside")) return fact.status;
    }
    return FactStatus::kProved;
  };
  EXPECT_EQ(status("1] {2}"), FactStatus::kGiven);
  EXPECT_EQ(status("2] {0, 2}"), FactStatus::kOpen);
  EXPECT_EQ(status("1] {3}"), FactStatus::kRefuted);
}

// Attentions over other queries may be two attentions, each with a scale of its own.
TEST(Refuted, NoScaleOfAnotherProduct) {
  const auto status = [](const std::string& queries) {
    const std::string call = "context = Attention <is_causal: int = 1> (q_heads,";
    const Proof proof = ProofOfPair(
        kCase, {},
        {{call, queries + "context = Attention <is_causal: int = 1, scale: float = 0.25> (mine,"}});
    for (const ProofFact& fact : proof.facts) {
      if (fact.text.starts_with("has the source's scale")) return fact.status;
    }
    return FactStatus::kProved;
  };
  EXPECT_EQ(status("mine = Neg (q_heads)\n"), FactStatus::kOpen);
  EXPECT_EQ(status("mine = Identity (q_heads)\n"), FactStatus::kRefuted);
}

}  // namespace
}  // namespace kvlift
