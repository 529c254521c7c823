// LIBS: proof rewrites
// SRCS: support/case_file.cc support/models.cc
// What an attention is read through, and what not: a fact lists the lemmas that it rests on.
#include <algorithm>
#include <string>

#include "support/proof_pair.h"

namespace kvlift {
namespace {

constexpr char kCase[] = "decomposed_attention_padding";
constexpr char kProbs[] = "probs = Softmax<axis = -1>(masked)";
constexpr char kScores[] = "scores = Mul(product, scale)";

Proof WithSource(const TextChanges& before) { return ProofOfPair(kCase, before, {}); }

bool Lists(const Proof& proof, const std::string& lemma) {
  return std::any_of(proof.facts.begin(), proof.facts.end(), [&](const ProofFact& fact) {
    return std::find(fact.lemmas.begin(), fact.lemmas.end(), lemma) != fact.lemmas.end();
  });
}

// Row 6: casts, guards and Dropout.
TEST(LookedThrough, RoundingCastsAreNot) {
  for (const char* type : {"10", "16", "2", "7"}) {
    SCOPED_TRACE(type);
    EXPECT_NE(Unproved(WithSource({{kProbs, fmt::format("probs0 = Softmax<axis = -1>(masked)\n"
                                                        "  probs1 = Cast<to = {}>(probs0)\n"
                                                        "  probs = Cast<to = 1>(probs1)",
                                                        type)}})),
              "");
    EXPECT_NE(Unproved(WithSource({{kScores, fmt::format("scores0 = Mul(product, scale)\n"
                                                         "  scores1 = Cast<to = {}>(scores0)\n"
                                                         "  scores = Cast<to = 1>(scores1)",
                                                         type)}})),
              "");
  }
}

TEST(LookedThrough, ExactCastsAre) {
  const Proof proof = WithSource({{kScores,
                                   "scores0 = Mul(product, scale)\n"
                                   "  scores1 = Identity(scores0)\n"
                                   "  scores = Cast<to = 1>(scores1)"}});
  EXPECT_EQ(Unproved(proof), "");
}

TEST(LookedThrough, AGuardOfTheProbabilitiesIs) {
  const Proof proof = WithSource({{kProbs,
                                   "probs0 = Softmax<axis = -1>(masked)\n"
                                   "  nan = IsNaN(probs0)\n"
                                   "  probs = Where(nan, none0, probs0)"}});
  EXPECT_EQ(Unproved(proof), "");
  EXPECT_TRUE(Lists(proof, "nan-guard"));
}

TEST(LookedThrough, AGuardOfSomethingElseIsNot) {
  EXPECT_NE(Unproved(WithSource({{kProbs,
                                  "probs0 = Softmax<axis = -1>(masked)\n"
                                  "  nan = IsNaN(masked)\n"
                                  "  probs = Where(nan, none0, probs0)"}})),
            "");
  EXPECT_NE(Unproved(WithSource({{kProbs,
                                  "probs0 = Softmax<axis = -1>(masked)\n"
                                  "  nan = IsNaN(probs0)\n"
                                  "  probs = Where(nan, scale, probs0)"}})),
            "");
}

TEST(LookedThrough, DropoutOutsideTrainingIs) {
  const TextChanges constants = {{"float none0 = {0}",
                                  "float none0 = {0}, float half = {0.5}, bool on = {1}, "
                                  "bool off = {0}"}};
  for (const char* mode : {"on", "off"}) {
    TextChanges changes = constants;
    changes.emplace_back(kProbs, fmt::format("probs0 = Softmax<axis = -1>(masked)\n"
                                             "  probs = Dropout(probs0, half, {})",
                                             mode));
    EXPECT_EQ(Unproved(WithSource(changes)).empty(), std::string(mode) == "off") << mode;
  }
}

TEST(Scales, AreNotReadThroughIntegers) {
  const TextChanges changes = {
      {kScores,
       "root = Sqrt(width)\n  whole = Cast<to = 7>(root)\n  back = Cast<to = 1>(whole)\n"
       "  scores = Div(product, back)"},
      {"float none0 = {0}", "float none0 = {0}, float width = {8.7}"}};
  const Proof proof = WithSource(changes);
  EXPECT_EQ(Unproved(proof), "") << "1 / int(sqrt(8.7)) is the conversion's 1 / 2";
  const Proof other =
      WithSource({changes[0], {"float none0 = {0}", "float none0 = {0}, float width = {9.7}"}});
  EXPECT_NE(Unproved(other), "") << "1 / int(sqrt(9.7)) is 1 / 3";
}

// Row 10: numbers that hide a key as long as scores are small enough.
TEST(Hidden, ByANumberIsAnEntryOfTheLedger) {
  const Proof exact = WithSource({});
  for (const ProofFact& fact : exact.facts) {
    for (const Assumption& given : fact.given) {
      EXPECT_NE(given.kind, AssumptionKind::kScoreRange) << fact.text;
    }
  }
  const Proof proof = WithSource({{"float low = {-inf}", "float low = {-10000.0}"}});
  EXPECT_EQ(Unproved(proof), "");
  EXPECT_TRUE(Lists(proof, "finite-minimum"));
  const bool listed =
      std::any_of(proof.assumptions.all().begin(), proof.assumptions.all().end(),
                  [](const Assumption& a) { return a.kind == AssumptionKind::kScoreRange; });
  EXPECT_TRUE(listed);
  EXPECT_TRUE(proof.assumptions.Has(AssumptionKind::kVisibleKey, "context"));
}

TEST(Refuted, ScalesAndWeights) {
  const Proof proof = WithSource({{"float scale = {0.5}", "float scale = {0.25}"}});
  EXPECT_TRUE(std::any_of(proof.facts.begin(), proof.facts.end(), [](const ProofFact& fact) {
    return fact.status == FactStatus::kRefuted;
  }));
}

}  // namespace
}  // namespace kvlift
