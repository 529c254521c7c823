// LIBS: proof rewrites verify
// SRCS: support/case_file.cc support/models.cc
// Right pairs that are written in other ways than the conversion's own, and what looks like each of
// them and is another model.
#include <string>

#include "ir/tensor_data.h"
#include "support/proof_pair.h"
#include "verify/prove_alone.h"

namespace kvlift {
namespace {

// Both models end with these statements, which make y of y0.
std::string WithEnd(const std::string& end_of_source, const std::string& end,
                    const std::string& constants_of_source = "",
                    const std::string& constants = "") {
  TextChanges before = {
      {kLastOfSource, "y0 = Reshape(context4, y_shape)\n" + end_of_source},
      {kConstantsOfSource, std::string(kConstantsOfSource) + constants_of_source}};
  TextChanges after = {{kLast, "y0 = Reshape (context4, y_shape)\n" + end},
                       {kConstants, std::string(kConstants) + constants}};
  return Unproved(ProofOfPair(kCase, before, after));
}

TEST(Weights, OfAnotherNameAreTheSameByTheirBytes) {
  EXPECT_EQ(WithEnd("y1 = Mul (y0, one_weight)\ny = Add (y1, other_weight)",
                    "y1 = Mul (y0, first)\ny = Add (y1, second)",
                    " float[16] one_weight = {1,2,3,4,5,6,7,8,1,2,3,4,5,6,7,8},"
                    " float[16] other_weight = {8,7,6,5,4,3,2,1,8,7,6,5,4,3,2,1},",
                    " float[16] second = {8,7,6,5,4,3,2,1,8,7,6,5,4,3,2,1},"
                    " float[16] first = {1,2,3,4,5,6,7,8,1,2,3,4,5,6,7,8},"),
            "");
  // Swapped.
  EXPECT_NE(WithEnd("y1 = Mul (y0, one_weight)\ny = Add (y1, other_weight)",
                    "y1 = Mul (y0, second)\ny = Add (y1, first)",
                    " float[16] one_weight = {1,2,3,4,5,6,7,8,1,2,3,4,5,6,7,8},"
                    " float[16] other_weight = {8,7,6,5,4,3,2,1,8,7,6,5,4,3,2,1},",
                    " float[16] second = {8,7,6,5,4,3,2,1,8,7,6,5,4,3,2,1},"
                    " float[16] first = {1,2,3,4,5,6,7,8,1,2,3,4,5,6,7,8},"),
            "");
  // One number is another one, or the shape is.
  EXPECT_NE(WithEnd("y = Mul (y0, weight)", "y = Mul (y0, renamed)",
                    " float[4,4] weight = {1,2,3,4,5,6,7,8,1,2,3,4,5,6,7,8},",
                    " float[4,4] renamed = {1,2,3,4,5,6,7,8,1,2,3,4,5,6,7,9},"),
            "");
  EXPECT_NE(WithEnd("y = MatMul (y0, weight)", "y = MatMul (y0, renamed)",
                    " float[16,1] weight = {1,2,3,4,5,6,7,8,1,2,3,4,5,6,7,8},",
                    " float[16] renamed = {1,2,3,4,5,6,7,8,1,2,3,4,5,6,7,8},"),
            "");
}

// Two that hold the same take turns; names of the source may stand for other numbers.
TEST(Weights, NamesAreNoNumbers) {
  const std::string x = "{1,2,3,4,5,6,7,8,1,2,3,4,5,6,7,8},",
                    z = "{8,7,6,5,4,3,2,1,8,7,6,5,4,3,2,1},";
  EXPECT_EQ(WithEnd("y1 = Mul (y0, a)\ny = Add (y1, b)", "y1 = Mul (y0, b)\ny = Add (y1, a)",
                    " float[16] a = " + x + " float[16] b = " + z,
                    " float[16] b = " + x + " float[16] a = " + z),
            "");
  EXPECT_NE(WithEnd("y1 = Mul (y0, a)\ny = Add (y1, b)", "y1 = Mul (y0, a)\ny = Add (y1, b)",
                    " float[16] a = " + x + " float[16] b = " + z,
                    " float[16] b = " + x + " float[16] a = " + z),
            "");
  EXPECT_EQ(WithEnd("y1 = Mul (y0, a)\ny = Add (y1, b)", "y1 = Mul (y0, c)\ny = Add (y1, d)",
                    " float[16] a = " + x + " float[16] b = " + x,
                    " float[16] c = " + x + " float[16] d = " + x),
            "");
}

TEST(Weights, AConstantNodeIsAnInitializer) {
  const std::string node = "w = Constant <value = float[2] {0.5, 2}> ()\n";
  const std::string end =
      "y1 = Unsqueeze (y0, minus)\ny2 = Mul (y1, w)\n"
      "y = ReduceSum <keepdims = 0> (y2, minus)";
  const std::string minus = " int64[1] minus = {-1},";
  EXPECT_EQ(WithEnd(end, node + end, minus + " float[2] w = {0.5, 2},", minus), "");
  EXPECT_NE(WithEnd(end, node + end, minus + " float[2] w = {0.5, 3},", minus), "");
}

TEST(Weights, OtherNumbersAreRefutedUnderAnyName) {
  const TextChanges before = {
      {kLastOfSource, "y0 = Reshape(context4, y_shape)\ny = Mul (y0, weight)"},
      {kConstantsOfSource, std::string(kConstantsOfSource) + " float[1] weight = {2},"}};
  const TextChanges after = {{kLast, "y0 = Reshape (context4, y_shape)\ny = Mul (y0, renamed)"},
                             {kConstants, std::string(kConstants) + " float[1] renamed = {3},"}};
  const Proof proof = ProofOfPair(kCase, before, after);
  EXPECT_EQ(proof.facts.back().status, FactStatus::kRefuted);
}

TEST(Attributes, WhatAnOperatorTakesByItselfMayBeWrittenOut) {
  EXPECT_EQ(WithEnd("y = LeakyRelu (y0)", "y = LeakyRelu <alpha: float = 0.01> (y0)"), "");
  EXPECT_EQ(WithEnd("y = LeakyRelu <alpha = 0.01> (y0)", "y = LeakyRelu (y0)"), "");
  EXPECT_NE(WithEnd("y = LeakyRelu (y0)", "y = LeakyRelu <alpha: float = 0.02> (y0)"), "");
  EXPECT_NE(WithEnd("y = LeakyRelu <alpha = 0.02> (y0)", "y = LeakyRelu (y0)"), "");
  // An attribute that an operator has none of says nothing that is known.
  EXPECT_NE(WithEnd("y = Softplus (y0)", "y = Softplus <alpha: float = 1> (y0)"), "");
}

// The source's Cast has no such attribute yet: it does what the younger one does by itself.
TEST(Attributes, AreNoneOfAnOlderOperator) {
  const auto rounded = [](const std::string& attributes) {
    return "y1 = Cast <to: int = 10" + attributes + "> (y0)\ny = Cast <to: int = 1> (y1)";
  };
  EXPECT_EQ(WithEnd(rounded(""), rounded(", saturate: int = 1")), "");
  EXPECT_NE(WithEnd(rounded(""), rounded(", saturate: int = 0")), "");
}

TEST(Heads, RepeatedByConcatAreThoseOfTheirGroup) {
  const char* name = "decomposed_attention_repeat_by_concat";
  EXPECT_EQ(Unproved(ProofOfPair(name, {}, {})), "");
  EXPECT_NE(Unproved(ProofOfPair(name,
                                 {{"k_rep = Concat<axis = 1>(k_u0, k_u0, k_u1, k_u1)",
                                   "k_rep = Concat<axis = 1>(k_u0, k_u1, k_u0, k_u1)"}},
                                 {})),
            "");
  EXPECT_NE(Unproved(ProofOfPair(name,
                                 {{"v_rep = Concat<axis = 1>(v_u0, v_u0, v_u1, v_u1)",
                                   "v_rep = Concat<axis = 1>(v_u0, v_u0, v_u0, v_u1)"}},
                                 {})),
            "");
}

TEST(Heads, AFoldedBiasIsAddedToItsOwn) {
  const char* name = "decomposed_attention_bias_folded";
  EXPECT_EQ(Unproved(ProofOfPair(name, {}, {})), "");
  const std::string bias = "bias3 = Reshape (bias, \"/kvlift/shared/derived_4\")";
  // Of the other sequence, or of the other heads.
  EXPECT_NE(Unproved(ProofOfPair(name, {},
                                 {{bias,
                                   "bias_t = Transpose <perm: ints = [1, 0, 2, 3]> (bias)\n"
                                   "bias3 = Reshape (bias_t, \"/kvlift/shared/derived_4\")"}})),
            "");
  EXPECT_NE(Unproved(ProofOfPair(name, {},
                                 {{bias,
                                   "head = Slice (bias, \"/kvlift/constant/ints_0\", "
                                   "\"/kvlift/constant/ints_1\", \"/kvlift/constant/ints_1\")\n"
                                   "bias3 = Reshape (head, \"/kvlift/shared/derived_4\")"}})),
            "");
}

TEST(Sequences, ThatNoStepHasKeepTheirRows) {
  const char* name = "fixed_buffer_larger_batch";
  EXPECT_EQ(Unproved(ProofOfPair(name, {}, {})), "");
  // The last slot is read from the one in front of it.
  EXPECT_NE(Unproved(ProofOfPair(
                name, {},
                {{"\"/kvlift/constant/ints_7\" =  {7}", "\"/kvlift/constant/ints_7\" =  {6}"}})),
            "");
}

TEST(Outputs, ScoresOfAnAttentionThatStays) {
  const char* name = "attention_op_keep_weights";
  EXPECT_EQ(Unproved(ProofOfPair(name, {}, {})), "");
  const std::string call = "context, \"\", \"\", weights = Attention (q_heads, ";
  EXPECT_NE(Unproved(ProofOfPair(name, {},
                                 {{call,
                                   "context, \"\", \"\", weights = Attention "
                                   "<qk_matmul_output_mode: int = 3> (q_heads, "}})),
            "");
  // Written out, what it is by itself.
  EXPECT_EQ(Unproved(ProofOfPair(name, {},
                                 {{call,
                                   "context, \"\", \"\", weights = Attention "
                                   "<qk_matmul_output_mode: int = 0> (q_heads, "}})),
            "");
}

// The values of a branch, and what a model's ends are given in front of them, go by one name.
TEST(Branches, HaveNamesOfTheirOwn) {
  const Model source = LoadTestModel("llama_optimum_merged");
  ConvertOptions options;
  options.target = Target::kGenaiStatic;
  options.max_seq_len = 64;
  auto conversion = Convert(source, options, AllRules());
  ASSERT_TRUE(conversion.ok() && conversion->model) << conversion.status();
  const auto proof = ProveAlone(source, AsModel(*conversion->model), conversion->manifest);
  ASSERT_TRUE(proof.ok()) << proof.status();
  EXPECT_EQ(Unproved(*proof), "");
}

// The conversion has its length from a mask's width.
class GivenByAMask : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    source_ = LoadTestModel(GetParam());
    ConvertOptions options;
    options.target = Target::kGenai;
    auto conversion = Convert(source_, options, AllRules());
    ASSERT_TRUE(conversion.ok() && conversion->model) << conversion.status();
    relation_ = conversion->manifest;
    after_ = *std::move(conversion->model);
  }

  Proof Prove() const { return ProveConversion(*source_.proto, after_, relation_); }

  onnx::NodeProto* Producer(std::string_view ending) {
    for (onnx::NodeProto& node : *after_.mutable_graph()->mutable_node()) {
      if (node.output_size() > 0 && node.output(0).ends_with(ending)) return &node;
    }
    return nullptr;
  }

  Model source_;
  Manifest relation_;
  onnx::ModelProto after_;
};

TEST_P(GivenByAMask, IsProvedGivenThatWidth) {
  const Proof proof = Prove();
  EXPECT_EQ(Unproved(proof), "");
  EXPECT_TRUE(proof.assumptions.Has(AssumptionKind::kMaskWidth, "attention_mask"));
}

TEST_P(GivenByAMask, OneMoreOrLessIsAnotherPlace) {
  onnx::NodeProto* past = Producer("/past_length");
  ASSERT_NE(past, nullptr);
  onnx::TensorProto* one = after_.mutable_graph()->add_initializer();
  *one = MakeInt64Tensor("one more", {1}, {1});
  const std::string result = past->output(0);
  past->set_output(0, "less one");
  onnx::NodeProto more;
  more.set_op_type("Add");
  more.add_input("less one");
  more.add_input("one more");
  more.add_output(result);
  auto* nodes = after_.mutable_graph()->mutable_node();
  *nodes->Add() = more;
  for (int k = nodes->size() - 1; (*nodes)[k - 1].output(0) != "less one"; --k) {
    nodes->SwapElements(k, k - 1);
  }
  EXPECT_NE(Unproved(Prove()), "");
}

// As many past tokens as there are new ones.
TEST_P(GivenByAMask, AnotherInputIsNotItsWidth) {
  onnx::NodeProto* past = Producer("/past_length");
  onnx::NodeProto* total = Producer("/total_length");
  ASSERT_TRUE(past != nullptr && total != nullptr);
  past->set_input(0, past->input(1));
  EXPECT_NE(Unproved(Prove()), "");
}

INSTANTIATE_TEST_SUITE_P(Models, GivenByAMask,
                         testing::Values("llama_attention_opset23", "llama_dynamic_dynamo",
                                         "llama_dynamic_mask_scatter_ts", "llama_dynamic_ts",
                                         "llama_dynamo_native_cache"),
                         [](const auto& model) { return std::string(model.param); });

}  // namespace
}  // namespace kvlift
