// LIBS: proof rewrites
// SRCS: support/case_edits.cc support/case_file.cc support/models.cc
// Differences that show only at sizes, bits or versions that no step of a test has: none of them
// may be called proved.
#include <algorithm>
#include <string>

#include "ir/operators/operator_changes.h"
#include "support/proof_pair.h"

namespace kvlift {
namespace {

// Beyond 40 new tokens the rows are cut to one, and broadcast again by Expand, which refuses
// nothing.
TEST(Broadcast, AnExtentThatMayBeOneIsNotTheOther) {
  const std::string cut =
      "s = Shape <start: int = 1, end: int = 2> (q)\n"
      "squared = Mul (s, s)\nmany = Greater (squared, limit)\nrows = Where (many, single, s)\n"
      "y_all = Reshape (context4, y_shape)\n"
      "y_cut = Slice (y_all, \"/kvlift/constant/ints_0\", rows, single)\n"
      "y_shape_now = Shape (y_all)\ny = Expand (y_cut, y_shape_now)";
  const std::string constants =
      std::string(kConstants) + " int64[1] limit = {1600}, int64[1] single = {1},";
  EXPECT_NE(Unproved(ProofOfPair(kCase, {}, {{kConstants, constants}, {kLast, cut}})), "");
}

TEST(Constants, ANegativeZeroIsNotZero) {
  const auto with = [](const std::string& constants, const std::string& zero) {
    return constants + " float[16] nought = {" + zero + "},";
  };
  std::string zeros = "0.0", negative = "-0.0";
  for (int k = 1; k < 16; ++k) {
    zeros += ", 0.0";
    negative += ", -0.0";
  }
  const TextChanges before = {
      {kConstantsOfSource, with(kConstantsOfSource, zeros)},
      {kLastOfSource,
       "y0 = Reshape(context4, y_shape)\n  r = Reciprocal(nought)\n  y = Add(y0, r)"}};
  const auto after = [&](const std::string& zero) {
    return TextChanges{{kConstants, with(kConstants, zero)},
                       {kLast,
                        "y0 = Reshape (context4, y_shape)\nr = Reciprocal (nought)\n"
                        "y = Add (y0, r)"}};
  };
  EXPECT_EQ(Unproved(ProofOfPair(kCase, before, after(zeros))), "");
  EXPECT_NE(Unproved(ProofOfPair(kCase, before, after(negative))), "");
}

// Runtimes refuse a rank-4 Attention whose head counts are not those of its operands.
TEST(Attributes, HeadCountsOfRankFourAreThoseOfTheOperands) {
  const auto heads = [](int count) {
    return TextChanges{
        {"Attention <is_causal: int = 1>", "Attention <is_causal: int = 1, q_num_heads: int = " +
                                               std::to_string(count) + ", kv_num_heads: int = 2>"}};
  };
  EXPECT_EQ(Unproved(ProofOfPair(kCase, {}, heads(4))), "");
  EXPECT_NE(Unproved(ProofOfPair(kCase, {}, heads(2))), "");
}

// One node may make the presents of two caches: each has its facts. Beyond 100000 tokens the keys
// are other numbers.
TEST(Caches, OneNodeThatMakesTwoPresentsIsProvedForBoth) {
  const auto with = [](const std::string& keys) {
    return TextChanges{
        {kConstants, std::string(kConstants) + " int64[1] far = {100000},"},
        {"present_k = TensorScatter", "kept_k = TensorScatter"},
        {"present_v = TensorScatter", "kept_v = TensorScatter"},
        {"Slice (present_k,", "Slice (kept_k,"},
        {"Slice (present_v,", "Slice (kept_v,"},
        {kLast, std::string(kLast) +
                    "\nlongest = ReduceMax (write_indices)\nis_far = Greater (longest, far)\n"
                    "more = Cast <to: int = 1> (is_far)\nwrong_k = Add (kept_k, more)\n"
                    "both = Concat <axis: int = 1> (" +
                    keys +
                    ", kept_v)\n"
                    "present_k, present_v = Split <axis: int = 1, num_outputs: int = 2> (both)"}};
  };
  const auto about = [](const Proof& proof, const std::string& cache) {
    return std::any_of(proof.facts.begin(), proof.facts.end(),
                       [&](const ProofFact& fact) { return fact.about == cache; });
  };
  for (const char* keys : {"kept_k", "wrong_k"}) {
    const Proof proof = ProofOfPair(kCase, {}, with(keys));
    EXPECT_TRUE(about(proof, "0.key") && about(proof, "0.value")) << keys;
    EXPECT_EQ(Unproved(proof).empty(), keys == std::string("kept_k")) << Unproved(proof);
  }
}

// No node makes a present that is a constant.
TEST(Caches, APresentThatNoNodeMakesIsNotProved) {
  const Proof proof =
      ProofOfPair(kCase, {},
                  {{kConstants, std::string(kConstants) + " float[1,2,4,4] present_k = {" +
                                    [] {
                                      std::string zeros = "0";
                                      for (int k = 1; k < 32; ++k) zeros += ", 0";
                                      return zeros;
                                    }() +
                                    "},"},
                   {"present_k = TensorScatter", "kept_k = TensorScatter"},
                   {"Slice (present_k,", "Slice (kept_k,"}});
  EXPECT_NE(Unproved(proof), "");
}

// Attention refuses a mask that has more columns than there are keys, so that no step would run.
TEST(Masks, AColumnMoreThanThereAreKeysIsRefused) {
  const std::string constants =
      std::string(kConstants) + " int64[1] last_axis = {3}, int64[1] single = {1},";
  const std::string attended = "\"/kvlift/layers.0/value/visible\", \"/kvlift/shared/mask_2\"";
  const std::string made =
      "[\"/kvlift/layers.0/Attention\"] context = Attention <is_causal: int = 1> (q_heads, "
      "\"/kvlift/layers.0/key/visible\", " +
      attended;
  const auto with = [&](const std::string& columns) {
    return TextChanges{
        {kConstants, constants},
        {made,
         "column = Slice (\"/kvlift/shared/mask_2\", \"/kvlift/constant/ints_0\", single, "
         "last_axis)\nwide = Concat <axis: int = 3> (" +
             columns +
             ")\n[\"/kvlift/layers.0/Attention\"] context = Attention <is_causal: int = 1> "
             "(q_heads, \"/kvlift/layers.0/key/visible\", "
             "\"/kvlift/layers.0/value/visible\", wide"}};
  };
  EXPECT_EQ(Unproved(ProofOfPair(kCase, {}, with("\"/kvlift/shared/mask_2\""))), "");
  EXPECT_NE(Unproved(ProofOfPair(kCase, {}, with("\"/kvlift/shared/mask_2\", column"))), "");
}

// ONNX Runtime takes 1 for causal, and any other number for not.
TEST(Attributes, OnlyOneIsUnidirectional) {
  const std::string name = "attention_op_multi_head_causal";
  EXPECT_EQ(Unproved(ProofOfPair(name, {}, {})), "");
  EXPECT_NE(Unproved(ProofOfPair(name, {{"unidirectional = 1", "unidirectional = 2"}}, {})), "");
}

TEST(Ledger, SaysUpToWhichSizesIntegersAreExact) {
  const Proof proof = ProofOfPair(kCase, {}, {});
  EXPECT_EQ(Unproved(proof), "");
  EXPECT_TRUE(proof.assumptions.Has(AssumptionKind::kIntegerRange, "sizes and integers"));
}

// Source and conversion differ where a hidden key is infinite: the source leaves its score out, and
// Attention adds -inf to it.
TEST(Ledger, SaysThatNumbersAreFinite) {
  const Proof proof = ProofOfPair(kCase, {}, {});
  EXPECT_EQ(Unproved(proof), "");
  EXPECT_TRUE(proof.assumptions.Has(AssumptionKind::kFinite, "numbers"));
}

// RoiAlign samples elsewhere since operator set 16, under the same attributes.
TEST(OperatorSets, OperatorsThatChangedAreOthers) {
  EXPECT_TRUE(ChangedMeaning("RoiAlign", 15, 24));
  EXPECT_FALSE(ChangedMeaning("RoiAlign", 16, 24));
  EXPECT_FALSE(ChangedMeaning("Softmax", 13, 24));
  const auto model = ParseModelText(
      "<ir_version: 8, opset_import: [\"\" : 17]>\n"
      "g (float[1,1,4,4] x) => (float[1,1,8,8] y)\n"
      "<float[4] scales = {1, 1, 2, 2}, float[0] roi = {}> { y = Resize (x, roi, scales) }");
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ(OperatorWithOtherMeaning(*model, 24), "Resize");
  EXPECT_EQ(OperatorWithOtherMeaning(*model, 17), "");
}

// LeakyRelu's own default is another number than the one that the function declares.
TEST(Functions, ACallGetsTheDefaultsThatTheFunctionDeclares) {
  const auto model = ParseModelText(
      "<ir_version: 10, opset_import: [\"\" : 20, \"local\" : 1]>\n"
      "g (float[B] x) => (float[B] y) { y = local.leaky (x) }\n"
      "<domain: \"local\", opset_import: [\"\" : 20]>\n"
      "leaky <alpha: float = 0.5> (x) => (y) { y = LeakyRelu <alpha: float = @alpha> (x) }");
  ASSERT_TRUE(model.ok()) << model.status();
  const auto inlined = InlineFunctions(*model);
  ASSERT_TRUE(inlined.ok()) << inlined.status();
  ASSERT_EQ(inlined->graph().node_size(), 1);
  EXPECT_EQ(FloatAttribute(inlined->graph().node(0), "alpha", 0.01F), 0.5F);
}

}  // namespace
}  // namespace kvlift
