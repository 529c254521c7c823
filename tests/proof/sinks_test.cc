// LIBS: proof rewrites
// SRCS: support/case_edits.cc support/case_file.cc support/models.cc
// Attention sinks: a key of zeros in the converted model stands for the source's additional score,
// and nothing else does.
#include <string>

#include "gmock/gmock.h"
#include "support/proof_pair.h"

namespace kvlift {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kSinkCase[] = "decomposed_attention_sink";

// Returns what is not proved of the case with these changes to its conversion.
std::string With(const TextChanges& changes) {
  return Unproved(ProofOfPair(kSinkCase, {}, changes));
}

TEST(Sinks, AreProved) { EXPECT_EQ(With({}), ""); }

TEST(Sinks, OfTheSourceAreNotLeftOut) {
  // The weights of the sink go to the keys.
  EXPECT_NE(
      Unproved(ProofOfPair(kSinkCase,
                           {{"probs = Slice(weights, first, axes_m1, axes_3)",
                             "kept = Slice(weights, first, axes_m1, axes_3)\n  sum = "
                             "ReduceSum<keepdims = 1>(kept, axes_m1)\n  probs = Div(kept, sum)"}},
                           {})),
      "");
}

TEST(Sinks, HaveTheSourcesScores) {
  const std::string scores = "float[4] sinks =  {0.5,-1,0.25,2}";
  EXPECT_EQ(With({{scores, scores}}), "");
  EXPECT_NE(With({{scores, "float[4] sinks =  {0.5,-1,0.25,2.5}"}}), "");
  EXPECT_NE(With({{scores, "float[4] sinks =  {-1,0.5,0.25,2}"}}), "");
}

TEST(Sinks, AreKeysAndValuesOfZeros) {
  const std::string zeros =
      " = Expand (\"/kvlift/constant/scalar_0\", \"/kvlift/layers.0/sink/shape";
  const auto other = [&](const std::string& name, const std::string& end) {
    const std::string row = "\"/kvlift/layers.0/sink/" + name + "\"" + zeros + end;
    return With({{row, absl::StrReplaceAll(row, {{"\"/kvlift/constant/scalar_0\"", "sinks"}})}});
  };
  EXPECT_NE(other("zeros", "\""), "");
  EXPECT_NE(With({{"\"/kvlift/layers.0/sink/value\" = Concat <axis: int = 2> "
                   "(\"/kvlift/layers.0/value/visible\", \"/kvlift/layers.0/sink/zeros\")",
                   "rows = Expand (sinks, \"/kvlift/layers.0/sink/shape\")\n"
                   "\"/kvlift/layers.0/sink/value\" = Concat <axis: int = 2> "
                   "(\"/kvlift/layers.0/value/visible\", rows)"}}),
            "");
}

TEST(Sinks, AreTheLastKeyThatNothingHides) {
  const std::string last =
      "Concat <axis: int = 3> (\"/kvlift/shared/bias_1\", \"/kvlift/shared/sinks\")";
  EXPECT_NE(With({{last,
                   "Concat <axis: int = 3> (\"/kvlift/shared/sinks\", "
                   "\"/kvlift/shared/bias_1\")"}}),
            "");
  const std::string valid = "\"\", \"\", \"/kvlift/layers.0/sink/nonpad_kv_seqlen\")";
  EXPECT_EQ(With({{valid, valid}}), "");
  EXPECT_NE(With({{valid, "\"\", \"\", \"/kvlift/shared/nonpad_kv_seqlen\")"}}), "");
  const std::string operator_24 = "context = Attention (";
  EXPECT_NE(With({{operator_24, "context = Attention <is_causal: int = 1> ("}}), "");
}

// The width of a bias is that of the keys only if an operator of the source says so.
TEST(Sinks, BesideABiasAreInTheLastColumn) {
  const auto with = [](const std::string& mask) {
    return Unproved(ProofOfPair("decomposed_attention_sink_and_bias", {},
                                {{"Concat <axis: int = 3> (\"/kvlift/shared/bias_1\", "
                                  "\"/kvlift/shared/sinks\")",
                                  mask}}));
  };
  EXPECT_EQ(with("Concat <axis: int = 3> (\"/kvlift/shared/bias_1\", \"/kvlift/shared/sinks\")"),
            "");
  EXPECT_NE(with("Concat <axis: int = 3> (\"/kvlift/shared/sinks\", \"/kvlift/shared/bias_1\")"),
            "");
  EXPECT_NE(with("Identity (\"/kvlift/shared/bias_1\")"), "");
  EXPECT_NE(with("Identity (\"/kvlift/shared/sinks\")"), "");
}

// A query that sees no other key gets NaN in the source, and 0 from the operator.
TEST(Sinks, OfMinusInfinityAreInTheLedger) {
  const auto ledger = [](const std::string& sink) {
    const std::string source = "float[4] sinks = {0.5,", result = "float[4] sinks =  {0.5,";
    const Proof proof = ProofOfPair(kSinkCase, {{source, "float[4] sinks = {" + sink + ","}},
                                    {{result, "float[4] sinks =  {" + sink + ","}});
    std::string all = Unproved(proof);
    for (const ProofFact& fact : proof.facts) {
      for (const Assumption& given : fact.given) all += given.condition + "\n";
    }
    return all;
  };
  EXPECT_THAT(ledger("-inf"), HasSubstr("the sink of context is more than -1e4"));
  EXPECT_THAT(ledger("0.75"), Not(HasSubstr("the sink of context is more than")));
}

TEST(Sinks, ScaleNothing) {
  // One number is taken off the scores of the keys, and not off that of the sink.
  EXPECT_NE(
      Unproved(ProofOfPair(
          kSinkCase,
          {{"both = Concat<axis = 3>(masked, column)",
            "peak = ReduceMax<axes = [-1], keepdims = 1>(masked)\n  under = Sub(masked, peak)\n"
            "  both = Concat<axis = 3>(under, column)"}},
          {})),
      "");
}

}  // namespace
}  // namespace kvlift
