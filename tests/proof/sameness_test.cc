// LIBS: proof rewrites
// SRCS: support/case_edits.cc support/case_file.cc support/models.cc
// Values are the same only if type, rank, extents and elements are: what was once called proved, by
// cause, and right pairs that look alike.
#include <string>

#include "support/proof_pair.h"

namespace kvlift {
namespace {

// Changes to the conversion, in which ints_8, ints_400 and more are constants.
std::string OpenWith(TextChanges after, const TextChanges& before = {}) {
  after.emplace_back(kConstants, std::string(kConstants) +
                                     " int64[1] ints_8 = {8}, int64[1] ints_400 = {400}, "
                                     "int64[1] ints_4096 = {4096}, ");
  return Unproved(ProofOfPair(kCase, before, after));
}

// A row of TRUST.md's table: 1, extents.
TEST(Extents, ResultsOfFewerTokensAreOthers) {
  EXPECT_NE(OpenWith({{kLast,
                       "y_all = Reshape (context4, y_shape)\n"
                       "y = Slice (y_all, \"/kvlift/constant/ints_0\", ints_4096, "
                       "\"/kvlift/constant/ints_1\")"}}),
            "");
}

TEST(Extents, CachesOfFewerSequencesAreOthers) {
  EXPECT_NE(OpenWith({{"present_k = TensorScatter <axis: int = 2> (past_k, k_new, write_indices)",
                       "whole_k = TensorScatter <axis: int = 2> (past_k, k_new, write_indices)\n"
                       "present_k = Slice (whole_k, \"/kvlift/constant/ints_0\", ints_8, "
                       "\"/kvlift/constant/ints_0\")"}}),
            "");
}

TEST(Extents, FewerQueriesAreOthers) {
  EXPECT_NE(OpenWith({{"(q_heads, \"/kvlift/layers.0/key/visible\"",
                       "(q_cut, \"/kvlift/layers.0/key/visible\""},
                      {"[\"/kvlift/shared/visible\"]",
                       "q_cut = Slice (q_heads, \"/kvlift/constant/ints_0\", ints_4096, "
                       "\"/kvlift/constant/ints_2\")\n[\"/kvlift/shared/visible\"]"}}),
            "");
}

// Row 2: an operand that is broadcast in the conversion only.
TEST(Broadcasts, OneTokenForAllIsAnotherResidual) {
  const TextChanges before = {{kLastOfSource, "y0 = Reshape(context4, y_shape)\n  y = Add(q, y0)"}};
  EXPECT_EQ(OpenWith({{kLast, "y0 = Reshape (context4, y_shape)\ny = Add (q, y0)"}}, before), "");
  EXPECT_NE(OpenWith({{kLast,
                       "y0 = Reshape (context4, y_shape)\n"
                       "first = Slice (q, \"/kvlift/constant/ints_0\", "
                       "\"/kvlift/constant/ints_1\", \"/kvlift/constant/ints_1\")\n"
                       "y = Add (first, y0)"}},
                     before),
            "");
}

// Row 3: columns that a mask does not have hide.
TEST(Masks, KeysBehindAShorterMaskAreHidden) {
  EXPECT_NE(OpenWith({{"\"/kvlift/shared/mask_2\", \"\", \"\"", "short, \"\", \"\""},
                      {"[\"/kvlift/layers.0/Attention\"]",
                       "three = Add (\"/kvlift/constant/ints_1\", \"/kvlift/constant/ints_2\")\n"
                       "short = Slice (\"/kvlift/shared/mask_2\", \"/kvlift/constant/ints_0\", "
                       "ints_400, three)\n[\"/kvlift/layers.0/Attention\"]"}}),
            "");
}

// Row 4: axes of reductions, as attribute, as input, or none.
TEST(Axes, AMeanOverEverythingIsAnother) {
  const TextChanges before = {
      {kLastOfSource,
       "y0 = Reshape(context4, y_shape)\n  m = ReduceMean<axes = [-1]>(y0)\n  y = Add(m, y0)"}};
  const std::string head = "y0 = Reshape (context4, y_shape)\n", tail = "\ny = Add (m, y0)";
  EXPECT_EQ(
      OpenWith({{kLast, head + "m = ReduceMean (y0, \"/kvlift/constant/ints_2\")" + tail}}, before),
      "");
  EXPECT_NE(OpenWith({{kLast, head + "m = ReduceMean (y0)" + tail}}, before), "");
  EXPECT_NE(
      OpenWith({{kLast, head + "m = ReduceMean (y0, \"/kvlift/constant/ints_1\")" + tail}}, before),
      "");
}

// Row 5: the softmax has a score more than there are keys.
TEST(Softmaxes, ASinkIsNoKey) {
  EXPECT_NE(
      Unproved(ProofOfPair(kCase,
                           {{"probs = Softmax<axis = -1>(masked)",
                             "sink = Slice(masked, ends_0, ends_1, ends_3)\n"
                             "  more = Concat<axis = -1>(masked, sink)\n"
                             "  probs_of_more = Softmax<axis = -1>(more)\n"
                             "  probs = Slice(probs_of_more, ends_0, ends_m1, ends_3)"},
                            {"float none0 = {0}",
                             "float none0 = {0}, int64[1] ends_0 = {0}, int64[1] ends_1 = {1}, "
                             "int64[1] ends_3 = {3}, int64[1] ends_m1 = {-1}"}},
                           {})),
      "");
}

// Row 9: the conversion's slots are called as the source's tokens.
TEST(Names, ADimensionOfTheConversionIsItsOwn) {
  const std::string far =
      "y0 = Reshape (context4, y_shape)\n"
      "slots = Shape <start: int = 2, end: int = 3> (past_k)\n"
      "rest = Sub (slots, \"/kvlift/shared/S\")\n"
      "number = Cast <to: int = 1> (rest)\n"
      "zero = Sub (number, number)\n"
      "y = Add (y0, number)";
  EXPECT_NE(OpenWith({{kLast, far}, {"max_sequence_length", "S"}}), "");
}

}  // namespace
}  // namespace kvlift
