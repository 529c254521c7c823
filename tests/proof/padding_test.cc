// LIBS: proof rewrites
// SRCS: support/case_edits.cc support/case_file.cc support/models.cc
// Padding tokens behind a sequence: a proof holds for steps that have some only if no real token
// reads them, and if nothing depends on how many tokens a step has. Otherwise the ledger says so.
#include <algorithm>
#include <string>

#include "support/proof_pair.h"

namespace kvlift {
namespace {

constexpr char kMore[] =
    " int64[1] at_0 = {0}, int64[1] at_1 = {1}, int64[1] at_2 = {2}, int64[1] to_last = {-1},"
    " int64[1] far = {-9223372036854775807}, int64[1] end = {9223372036854775807},"
    " int64[6] in_front = {0, 1, 0, 0, 0, 0}, float third = {0.375},"
    " int64[3] by_head = {0, -1, 4}, int64[3] by_two = {0, -1, 8}, int64[3] by_token = {0, -1, 16},"
    " int64[3] by_part = {0, 4, -1}, int64[4] by_split = {0, 4, -1, 4}, int64[4] by_split4 = {0, "
    "0, 4, 4},";

// Proves both models of the case, of which both end with the same statements, which make y of y0.
Proof WithEnd(
    const std::string& end, const std::function<void(Manifest*)>& change = [](Manifest*) {},
    const char* name = kCase) {
  return ProofOfPair(name,
                     {{kLastOfSource, "y0 = Reshape(context4, y_shape)\n" + end},
                      {kConstantsOfSource, std::string(kConstantsOfSource) + kMore}},
                     {{kLast, "y0 = Reshape (context4, y_shape)\n" + end},
                      {kConstants, std::string(kConstants) + kMore}},
                     change);
}

// Returns what the ledger says of padding tokens; empty if steps may have some.
std::string Excluded(const Proof& proof) {
  EXPECT_EQ(Unproved(proof), "");
  for (const Assumption& assumption : proof.assumptions.all()) {
    const bool all = assumption.kind == AssumptionKind::kPadding && assumption.subject.empty();
    if (all) return assumption.condition;
  }
  return "";
}

TEST(Padding, OfTheCaseItselfReachesNoRealToken) {
  EXPECT_EQ(Excluded(ProofOfPair(kCase, {}, {})), "");
}

TEST(Padding, IsAllowedWhereEachTokenIsComputedAlone) {
  EXPECT_EQ(Excluded(WithEnd("top = ReduceMax<axes = [2]>(y0)\ny = Sub(y0, top)")), "");
  EXPECT_EQ(Excluded(WithEnd("flat = Flatten<axis = 2>(y0)\nsoft = Softmax<axis = -1>(flat)\n"
                             "shape = Shape(y0)\ny = Reshape(soft, shape)")),
            "");
}

// Exporters normalise heads in [B, S * N, D], where the heads of a token lie next to each other.
TEST(Padding, IsAllowedWhereTheHeadsOfATokenShareAnAxisWithTheTokens) {
  EXPECT_EQ(Excluded(WithEnd("apart = Reshape(y0, by_head)\nsoft = Softmax<axis = -1>(apart)\n"
                             "y = Reshape(soft, by_token)")),
            "");
  EXPECT_EQ(Excluded(WithEnd("apart = Reshape(y0, by_two)\nsoft = Softmax<axis = -1>(apart)\n"
                             "again = Reshape(soft, by_head)\nmore = Softmax<axis = -1>(again)\n"
                             "y = Reshape(more, by_token)")),
            "");
}

TEST(Padding, IsExcludedWhereAnAxisOfTokensAndHeadsMixesTokens) {
  // All heads of all tokens.
  EXPECT_NE(Excluded(WithEnd("apart = Reshape(y0, by_head)\nsoft = Softmax<axis = 1>(apart)\n"
                             "y = Reshape(soft, by_token)")),
            "");
  // A quarter of the tokens.
  EXPECT_NE(Excluded(WithEnd("apart = Reshape(y0, by_part)\nsoft = Softmax<axis = -1>(apart)\n"
                             "y = Reshape(soft, by_token)")),
            "");
  // The axis is read with the tokens of a head next to each other.
  EXPECT_NE(Excluded(WithEnd(
                "apart = Reshape(y0, by_head)\nsoft = Softmax<axis = -1>(apart)\n"
                "four = Reshape(soft, by_split)\nturned = Transpose<perm = [0, 2, 1, 3]>(four)\n"
                "y = Reshape(turned, by_token)")),
            "");
  // A sum over the heads takes in all tokens of the heads in front.
  EXPECT_NE(Excluded(WithEnd(
                "apart = Reshape(y0, by_split4)\nturned = Transpose<perm = [0, 2, 1, "
                "3]>(apart)\nflat = Reshape(turned, by_head)\nsum = CumSum(flat, at_1)\n"
                "four = Reshape(sum, by_split)\nback = Transpose<perm = [0, 2, 1, 3]>(four)\n"
                "y = Reshape(back, by_token)")),
            "");
  // A token's second head is the first head of the next token.
  EXPECT_NE(Excluded(WithEnd("apart = Reshape(y0, by_head)\nsoft = Softmax<axis = -1>(apart)\n"
                             "rest = Slice(soft, at_1, end, at_1)\nfirst = Slice(soft, at_0, at_1, "
                             "at_1)\nmoved = Concat<axis = 1>(rest, first)\n"
                             "y = Reshape(moved, by_token)")),
            "");
}

// Statements by which a token reads an earlier one of its step, behind the attention.
constexpr const char* kEarlier[] = {"y = CumSum(y0, at_1)",
                                    "first = Slice(y0, at_0, at_1, at_1)\ny = Add(y0, first)",
                                    "padded = Pad(y0, in_front)\nn = Shape<start = 1, end = 2>(q)\n"
                                    "before = Slice(padded, at_0, n, at_1)\ny = Add(y0, before)"};

TEST(Padding, IsAllowedWhereEarlierTokensAreReadAndNoMaskHidesTokensInFront) {
  for (const char* end : kEarlier) {
    EXPECT_EQ(Excluded(WithEnd(
                  end, [](Manifest*) {}, "decomposed_attention_gqa")),
              "")
        << end;
  }
}

// The mask of the host may hide tokens in front of a sequence, whose queries then see no key. The
// models may give these different rows, which the tokens behind them read.
TEST(Padding, IsExcludedWhereRowsWithoutKeysReachLaterTokens) {
  for (const char* end : kEarlier) EXPECT_NE(Excluded(WithEnd(end)), "") << end;
}

TEST(Padding, IsExcludedWhereTheNumberOfTokensIsAFactor) {
  EXPECT_NE(Excluded(WithEnd("n = Shape<start = 1, end = 2>(q)\nnumber = Cast<to = 1>(n)\n"
                             "y = Mul(y0, number)")),
            "");
}

TEST(Padding, IsExcludedWhereTokensAreReversed) {
  EXPECT_NE(
      Excluded(WithEnd("turned = Slice(y0, to_last, far, at_1, to_last)\ny = Add(y0, turned)")),
      "");
}

TEST(Padding, IsExcludedWhereTheNextTokenIsRead) {
  EXPECT_NE(Excluded(WithEnd("tail = Slice(y0, at_1, end, at_1)\n"
                             "first = Slice(y0, at_0, at_1, at_1)\n"
                             "next = Concat<axis = 1>(tail, first)\ny = Add(y0, next)")),
            "");
}

TEST(Padding, IsExcludedWhereTheLastTokenIsAddedToAll) {
  EXPECT_NE(Excluded(WithEnd("last = Slice(y0, to_last, end, at_1)\ny = Add(y0, last)")), "");
}

TEST(Padding, IsExcludedWhereTokensAreReducedOrSummedFromTheEnd) {
  EXPECT_NE(Excluded(WithEnd("top = ReduceMax<axes = [1]>(y0)\ny = Sub(y0, top)")), "");
  EXPECT_NE(Excluded(WithEnd("y = CumSum<reverse = 1>(y0, at_1)")), "");
}

TEST(Padding, IsExcludedWhereSequencesOfOneRunInfluenceEachOther) {
  const auto uniform = [](Manifest* relation) {
    relation->uniform = true;
    relation->uniform_reason = "a test says so";
  };
  const std::string first = "first = Slice(y0, at_0, at_1, at_0)\ny = Add(y0, first)";
  EXPECT_NE(Excluded(WithEnd(first, uniform)), "");
  EXPECT_EQ(Excluded(WithEnd("y = Identity(y0)", uniform)), "");
}

// Proves both models of the case with one more input, which is added to y.
Proof WithInput(const std::string& declared, const std::string& end, bool uniform = false) {
  const std::string past = "float[B,2,P,4] past_k,";
  const std::string buffer = "float[B,2,max_sequence_length,4] past_k,";
  const std::string input = declared + " other, ";
  return ProofOfPair(kCase,
                     {{kLastOfSource, "y0 = Reshape(context4, y_shape)\n" + end},
                      {kConstantsOfSource, std::string(kConstantsOfSource) + kMore},
                      {past, input + past}},
                     {{kLast, "y0 = Reshape (context4, y_shape)\n" + end},
                      {kConstants, std::string(kConstants) + kMore},
                      {buffer, input + buffer}},
                     [&](Manifest* relation) {
                       relation->inputs.emplace_back().name = "other";
                       relation->uniform = uniform;
                     });
}

// Returns what the ledger says of the axes of inputs that hold neither sequences nor tokens.
std::string OtherDimensionsIn(const Proof& proof) {
  EXPECT_EQ(Unproved(proof), "");
  std::string text;
  for (const Assumption& assumption : proof.assumptions.all()) {
    if (assumption.kind == AssumptionKind::kOtherDimension) text += assumption.condition + "\n";
  }
  return text;
}

constexpr char kLargest[] =
    "top = ReduceMax<axes = [1], keepdims = 1>(other)\nnumber = Cast<to = 1>(top)\n"
    "each = Unsqueeze(number, at_1)\ny = Add(y0, each)";

TEST(Padding, AMaskOfAnyWidthIsOfOneWidthInAllRuns) {
  constexpr char kSame[] =
      "other.shape[1] is the same for each sequence alone, without padding tokens\n";
  EXPECT_EQ(OtherDimensionsIn(WithInput("int64[B,C]", kLargest)), kSame);
  EXPECT_EQ(OtherDimensionsIn(WithInput("bool[B,C]",
                                        "number = Cast<to = 1>(other)\n"
                                        "sum = ReduceSum<keepdims = 1>(number, at_1)\n"
                                        "each = Unsqueeze(sum, at_1)\ny = Add(y0, each)")),
            kSame);
}

TEST(Padding, AnInputOfSequencesTokensOrAFixedSizeNeedsNoEntry) {
  EXPECT_EQ(OtherDimensionsIn(WithInput("int64[B,5]", kLargest)), "");
  EXPECT_EQ(OtherDimensionsIn(WithInput("int64[B,S]",
                                        "number = Cast<to = 1>(other)\n"
                                        "each = Unsqueeze(number, at_2)\ny = Add(y0, each)")),
            "");
  EXPECT_EQ(OtherDimensionsIn(WithInput("int64[B,C]", "y = Identity(y0)")), "");
}

TEST(Padding, AnInputOfOneRunForAllSequencesNeedsNoEntry) {
  EXPECT_EQ(OtherDimensionsIn(WithInput("int64[B,C]", kLargest, true)), "");
}

TEST(Padding, IsSaidOnceWhereAPreconditionExcludesIt) {
  const auto stated = [](Manifest* relation) {
    relation->preconditions.push_back({"KV236", "a test says so", PreconditionStatus::kAssumed});
  };
  EXPECT_EQ(Excluded(WithEnd("last = Slice(y0, to_last, end, at_1)\ny = Add(y0, last)", stated)),
            "");
}

// A mask of the host hides padding tokens, unless its scores are quantised behind it: then they
// have the weight of the lowest code.
TEST(Padding, IsExcludedWhereScoresAreQuantisedBehindTheMask) {
  const char* const name = "decomposed_attention_padding_quantized_without_padding";
  const auto silent = [](Manifest* m) {
    std::erase_if(m->preconditions, [](const Precondition& p) { return p.code == "KV236"; });
  };
  EXPECT_NE(Excluded(ProofOfPair(name, {}, {}, silent)), "");
  const std::pair<std::string, std::string> of_source = {"Softmax<axis = -1>(rounded)",
                                                         "Softmax<axis = -1>(masked)"};
  const std::pair<std::string, std::string> of_result = {"Softmax <axis: int = -1> (rounded)",
                                                         "Softmax <axis: int = -1> (masked)"};
  EXPECT_EQ(Excluded(ProofOfPair(name, {of_source}, {of_result}, silent)), "");
}

}  // namespace
}  // namespace kvlift
