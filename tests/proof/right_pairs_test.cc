// LIBS: proof rewrites verify
// SRCS: support/case_edits.cc support/case_file.cc support/models.cc
// Right pairs that are written in other ways than the conversion's own, and what looks like each of
// them and is another model.
#include <string>

#include "fmt/format.h"
#include "proof/prove/prove_conversion.h"
#include "support/proof_pair.h"
#include "verify/judge/prove_alone.h"

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

// A converted model may have the names of one branch where the source has those of another.
TEST(Names, OfRoundedNumbersMayBeSwapped) {
  const std::string source =
      "place = Cast <to = 7> (y0)\nother = Neg (y0)\nback = Cast <to = 1> (place)\n"
      "y = Add (back, other)";
  EXPECT_EQ(WithEnd(source,
                    "other = Cast <to = 7> (y0)\nplace = Neg (y0)\nback = Cast <to = 1> (other)\n"
                    "y = Add (back, place)"),
            "");
  EXPECT_NE(WithEnd(source,
                    "other = Cast <to = 6> (y0)\nplace = Neg (y0)\nback = Cast <to = 1> (other)\n"
                    "y = Add (back, place)"),
            "");
}

// ONNX Runtime's optimizer puts transposes into products, perhaps in one of two branches only.
TEST(Products, ThatTransposeAnOperandThemselves) {
  const auto proved = [](const std::string& fused) {
    const std::string weight = " float[2,16] weight = {" + [] {
      std::string numbers = "1";
      for (int k = 2; k <= 32; ++k) numbers += fmt::format(", {}", k);
      return numbers;
    }() + "},";
    const std::string ending = "\nz = ReduceSum (m, reduced)\ny = Mul (y0, z)";
    const std::string constants = weight + " int64[1] reduced = {-1},";
    const TextChanges before = {
        {kLastOfSource,
         "y0 = Reshape(context4, y_shape)\nturned = Transpose <perm = [1, 0]> (weight)\n"
         "m = MatMul (y0, turned)" +
             ending},
        {kConstantsOfSource, std::string(kConstantsOfSource) + constants}};
    const TextChanges after = {
        {"opset_import: [\"\" : 24]", "opset_import: [\"\" : 24, \"com.microsoft\" : 1]"},
        {kLast,
         "y0 = Reshape (context4, y_shape)\nm = com.microsoft.FusedMatMul " + fused + ending},
        {kConstants, std::string(kConstants) + constants}};
    return Unproved(ProofOfPair(kCase, before, after));
  };
  EXPECT_EQ(proved("<transB = 1> (y0, weight)"), "");
  EXPECT_EQ(proved("<transB = 1, alpha = 1.0> (y0, weight)"), "");
  EXPECT_NE(proved("<transB = 1, alpha = 0.5> (y0, weight)"), "");
  EXPECT_NE(proved("<transB = 1, transBatchB = 1> (y0, weight)"), "");
}

// Before opset 13, Softmax joined all axes from its own on.
TEST(Softmaxes, OfOlderOpsetsOverTheLastAxis) {
  const auto proved = [](const std::string& of_source, const std::string& own) {
    const TextChanges before = {
        {kLastOfSource,
         "y0 = Reshape(context4, y_shape)\ny = Softmax <axis = " + of_source + "> (y0)"}};
    const TextChanges after = {
        {kLast, "y0 = Reshape (context4, y_shape)\ny = Softmax <axis = " + own + "> (y0)"}};
    return Unproved(ProofOfPair("decomposed_attention_opset11", before, after));
  };
  EXPECT_EQ(proved("2", "-1"), "");
  EXPECT_EQ(proved("-1", "2"), "");
  EXPECT_NE(proved("1", "1"), "");
  EXPECT_NE(proved("1", "-1"), "");
  EXPECT_NE(proved("2", "1"), "");
}

TEST(Weights, ThatAreOutputs) {
  const auto proved = [](const std::string& number) {
    const TextChanges before = {
        {"float[B,S,16] y", "float[B,S,16] y, float[2] w"},
        {kConstantsOfSource, std::string(kConstantsOfSource) + " float[2] w = {1, 2},"}};
    const TextChanges after = {
        {"float[B,S,16] y", "float[B,S,16] y, float[2] w"},
        {kConstants, std::string(kConstants) + " float[2] own = {1, " + number + "},"},
        {kLast, std::string(kLast) + "\nw = Identity (own)"}};
    return Unproved(ProofOfPair(kCase, before, after, [](Manifest* relation) {
      relation->outputs.push_back({.name = "w"});
    }));
  };
  EXPECT_EQ(proved("2"), "");
  EXPECT_NE(proved("3"), "");
}

// The sum of one element is that element, and the sum of its squares is not.
TEST(Reductions, OfOneElement) {
  const auto reduced = [](const std::string& op) {
    return "n = Shape <start = 1, end = 2> (q)\nr = " + op +
           " (n)\nf = Cast <to = 1> (r)\ny = Mul (y0, f)";
  };
  for (const char* same : {"ReduceSum", "ReduceMax", "ReduceMin", "ReduceProd"}) {
    EXPECT_EQ(WithEnd(reduced("ReduceSum"), reduced(same)), "") << same;
  }
  for (const char* other : {"ReduceSumSquare", "ReduceL1", "ReduceL2", "ReduceLogSum"}) {
    EXPECT_NE(WithEnd(reduced("ReduceSum"), reduced(other)), "") << other;
  }
}

// x * (1 / y) and x / y, in either model.
TEST(Quotients, AreProductsWithInverses) {
  const std::string root = "r0 = Mul (y0, y0)\nr = Sqrt (r0)\n";
  const std::string quotient = root + "y = Div (y0, r)";
  const std::string ones = " float unit = {1}, float[1,1,1,1] wide = {1}, float two = {2},";
  for (const std::string& product :
       {root + "i = Reciprocal (r)\ny = Mul (y0, i)", root + "i = Reciprocal (r)\ny = Mul (i, y0)",
        root + "i = Div (unit, r)\ny = Mul (y0, i)"}) {
    EXPECT_EQ(WithEnd(product, quotient, ones, ones), "") << product;
    EXPECT_EQ(WithEnd(quotient, product, ones, ones), "") << product;
  }
  for (const std::string& other :
       {root + "i = Div (two, r)\ny = Mul (y0, i)", root + "i = Reciprocal (y0)\ny = Mul (r, i)",
        root + "i = Reciprocal (r0)\ny = Mul (y0, i)",
        root + "i = Div (wide, r)\nz = Mul (y0, i)\ny = Squeeze (z, zeroth)",
        root + "i = Reciprocal (r)\ny = Mul (i, i)"}) {
    EXPECT_NE(WithEnd(other, quotient, ones + " int64[1] zeroth = {0},", ones), "") << other;
  }
}

TEST(Quotients, RestOnFiniteInverses) {
  const Proof proof =
      ProofOfPair(kCase,
                  {{kLastOfSource,
                    "y0 = Reshape(context4, y_shape)\nr = Exp(y0)\ni = Reciprocal(r)\n"
                    "y = Mul(y0, i)"}},
                  {{kLast, "y0 = Reshape (context4, y_shape)\nr = Exp (y0)\ny = Div (y0, r)"}});
  EXPECT_EQ(Unproved(proof), "");
  EXPECT_TRUE(proof.assumptions.Has(AssumptionKind::kFinite, "i"));
}

// An optimiser leaves one of several nodes that compute the same.
TEST(Repeated, OneNodeStandsForAll) {
  const std::string twice = "a = Sin (y0)\nb = Sin (y0)\n";
  const std::string end = "c = Cos (b)\nd = Cos (a)\ne = Mul (a, c)\ny = Add (e, d)";
  const std::string source = twice + end;
  EXPECT_EQ(WithEnd(source, "a = Sin (y0)\nc = Cos (a)\ne = Mul (a, c)\ny = Add (e, c)"), "");
  EXPECT_EQ(WithEnd(source, "b = Sin (y0)\nd = Cos (b)\ne = Mul (b, d)\ny = Add (e, d)"), "");
  EXPECT_EQ(WithEnd("a = Identity (y0)\nb = Cast <to = 1> (a)\nc = Sin (b)\ny = Mul (a, c)",
                    "c = Sin (y0)\ny = Mul (y0, c)"),
            "");
  // Other attributes, operands in another order, and random numbers.
  EXPECT_NE(WithEnd("a = LeakyRelu <alpha = 0.1> (y0)\nb = LeakyRelu <alpha = 0.2> (y0)\n"
                    "y = Sub (a, b)",
                    "a = LeakyRelu <alpha = 0.1> (y0)\ny = Sub (a, a)"),
            "");
  EXPECT_NE(WithEnd("s = Sin (y0)\na = Sub (y0, s)\nb = Sub (s, y0)\nc = Cos (a)\nd = Exp (b)\n"
                    "y = Add (c, d)",
                    "s = Sin (y0)\na = Sub (y0, s)\nc = Cos (a)\nd = Exp (a)\ny = Add (c, d)"),
            "");
  EXPECT_NE(WithEnd("a = RandomNormalLike (y0)\nb = RandomNormalLike (y0)\nc = Sub (a, b)\n"
                    "y = Add (y0, c)",
                    "a = RandomNormalLike (y0)\nc = Sub (a, a)\ny = Add (y0, c)"),
            "");
  EXPECT_NE(WithEnd("a = Cast <to = 10> (y0)\nb = Cast <to = 1> (a)\ny = Sin (b)", "y = Sin (y0)"),
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

TEST(Weights, AConstantNodeMayGiveAnOutput) {
  const auto ends_with = [](const std::string& statements) {
    return TextChanges{{kLastOfSource, "y0 = Reshape(context4, y_shape)\n" + statements}};
  };
  const auto identity_of = [](const std::string& number) {
    return TextChanges{{kLast, "c = Constant <value = float[1,1,16] {" + number +
                                   ",0,0,0,0,0,0,0,0,0,0,0,0,0,0,0}> ()\ny = Identity (c)"}};
  };
  const TextChanges source =
      ends_with("y = Constant<value = float[1,1,16] {7,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0}>()");
  EXPECT_EQ(Unproved(ProofOfPair(kCase, source, identity_of("7"))), "");
  EXPECT_NE(Unproved(ProofOfPair(kCase, source, identity_of("8"))), "");
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

// Elements keep their order in any shape, and get one shape again: the models are equal.
TEST(Shapes, OfElementsInTheirOrderRefuteNothing) {
  const auto status_of = [](const std::string& shape, const std::string& other) {
    const TextChanges before = {
        {kLastOfSource,
         "y0 = Reshape(context4, y_shape)\ny1 = Reshape(y0, some_shape)\n"
         "y2 = Tanh(y1)\ny = Reshape(y2, y_shape)"},
        {kConstantsOfSource, std::string(kConstantsOfSource) + " int64[4] some_shape = " + shape}};
    const TextChanges after = {
        {kLast,
         "y0 = Reshape (context4, y_shape)\ny1 = Reshape (y0, some_shape)\n"
         "y2 = Tanh (y1)\ny = Reshape (y2, y_shape)"},
        {kConstants, std::string(kConstants) + " int64[4] some_shape = " + other}};
    return ProofOfPair(kCase, before, after).facts.back().status;
  };
  EXPECT_EQ(status_of("{0,0,2,8},", "{0,0,2,8},"), FactStatus::kGiven);
  EXPECT_EQ(status_of("{0,0,2,8},", "{0,0,8,2},"), FactStatus::kOpen);
}

TEST(Attributes, WhatAnOperatorTakesByItselfMayBeWrittenOut) {
  EXPECT_EQ(WithEnd("y = LeakyRelu (y0)", "y = LeakyRelu <alpha: float = 0.01> (y0)"), "");
  EXPECT_EQ(WithEnd("y = LeakyRelu <alpha = 0.01> (y0)", "y = LeakyRelu (y0)"), "");
  EXPECT_NE(WithEnd("y = LeakyRelu (y0)", "y = LeakyRelu <alpha: float = 0.02> (y0)"), "");
  EXPECT_NE(WithEnd("y = LeakyRelu <alpha = 0.02> (y0)", "y = LeakyRelu (y0)"), "");
  // An attribute that an operator has none of says nothing that is known.
  EXPECT_NE(WithEnd("y = Softplus (y0)", "y = Softplus <alpha: float = 1> (y0)"), "");
}

TEST(Attributes, AnAxisMayBeCountedFromEitherEnd) {
  const auto softmax = [](int axis) {
    return "y = Softmax <axis = " + std::to_string(axis) + "> (y0)";
  };
  EXPECT_EQ(WithEnd(softmax(-2), softmax(1)), "");
  EXPECT_EQ(WithEnd(softmax(2), "y = Softmax (y0)"), "");
  EXPECT_NE(WithEnd(softmax(-2), softmax(2)), "");
  EXPECT_NE(WithEnd(softmax(-2), "y = Softmax (y0)"), "");
  EXPECT_EQ(WithEnd("y = Hardmax <axis = 1> (y0)", "y = Hardmax <axis = -2> (y0)"), "");
  EXPECT_NE(WithEnd("y = Hardmax <axis = 1> (y0)", "y = Hardmax <axis = -1> (y0)"), "");
  // The axis of CumSum is an input.
  const std::string sum = "y = CumSum (y0, along)";
  EXPECT_EQ(WithEnd(sum, sum, " int64 along = {1},", " int64 along = {-2},"), "");
  EXPECT_NE(WithEnd(sum, sum, " int64 along = {1},", " int64 along = {-1},"), "");
}

// Both models find the best of four places; only the converted one looks it up in a table.
TEST(Lookups, PlacesOnAnAxisAreInsideATableOfThatSize) {
  const auto leaves_open = [](const std::string& table) {
    const std::string best =
        "four = Slice (y0, zero1, four1, two1)\nmost, best = TopK <axis = 2> (four, one1)\n";
    const std::string numbers =
        " int64[1] zero1 = {0}, int64[1] one1 = {1}, int64[1] four1 = {4}, int64[1] two1 = {2},";
    const std::string unproved = WithEnd(best + "place = Cast <to = 1> (best)\ny = Add (y0, place)",
                                         best + "bonus = Gather (table, best)\ny = Add (y0, bonus)",
                                         numbers, numbers + table);
    return unproved.find("(index of a Gather) is not shown") != std::string::npos;
  };
  EXPECT_FALSE(leaves_open(" float[4] table = {1, 2, 3, 4},"));
  EXPECT_TRUE(leaves_open(" float[3] table = {1, 2, 3},"));
}

// The source's Cast has no such attribute yet: it does what the younger one does by itself.
TEST(Attributes, AreNoneOfAnOlderOperator) {
  const auto rounded = [](const std::string& attributes) {
    return "y1 = Cast <to: int = 10" + attributes + "> (y0)\ny = Cast <to: int = 1> (y1)";
  };
  EXPECT_EQ(WithEnd(rounded(""), rounded(", saturate: int = 1")), "");
  EXPECT_NE(WithEnd(rounded(""), rounded(", saturate: int = 0")), "");
}

// The source adds one row for all tokens; the converted model has a copy for each.
TEST(Broadcasts, ByOneModelOnlyGiveTheSameExtents) {
  const std::string row = " float[16] row = {1,2,3,4,5,6,7,8,1,2,3,4,5,6,7,8},";
  EXPECT_EQ(WithEnd("sum = Add (y0, row)\ny = Relu (sum)",
                    "dims = Shape (y0)\nrows = Expand (row, dims)\nsum = Add (y0, rows)\n"
                    "y = Relu (sum)",
                    row, row),
            "");
  // Nothing else gives the sum the extents of the tokens.
  EXPECT_NE(WithEnd("sum = Add (row, row)\ny = Relu (sum)",
                    "dims = Shape (y0)\nrows = Expand (row, dims)\nsum = Add (row, rows)\n"
                    "y = Relu (sum)",
                    row, row),
            "");
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
  // A bias of the other sequence, or of the other heads, is another one.
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

// The attention that stays reshapes its keys to a length that is computed from the write index in
// another way than the length at which the buffer is cut.
TEST(Lengths, ComputedByTwoWaysAreOneWhereAllSequencesAgree) {
  const char* name = "growing_concat_keep_turned_when_read";
  EXPECT_EQ(Unproved(ProofOfPair(name, {}, {})), "");
  EXPECT_NE(
      Unproved(ProofOfPair(name, {}, {}, [](Manifest* relation) { relation->uniform = false; })),
      "");
  // The last key is cut off.
  EXPECT_NE(Unproved(ProofOfPair(name,
                                 {{"t = Gather(all_dims, axis_s)",
                                   "t_all = Gather(all_dims, axis_s)\nt = Sub(t_all, one)"}},
                                 {})),
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

TEST(Einsum, ReadsOperandsAtThePlacesOfItsLetters) {
  std::string weight = " float[16,16] weight = {0.5";
  for (int k = 1; k < 256; ++k) weight += ",0.125";
  weight += "},";
  const auto both = [&](const std::string& nodes) { return WithEnd(nodes, nodes, weight, weight); };
  EXPECT_EQ(both("y = Einsum<equation = \"bsh,hk->bsk\">(y0, weight)"), "");
  EXPECT_EQ(both("y = Einsum<equation = \"ash, hz -> asz\">(y0, weight)"), "");
  // A sum over all sequences, and products of each sequence with all.
  EXPECT_NE(both("all = Einsum<equation = \"bsh->sh\">(y0)\ny = Add(y0, all)"), "");
  EXPECT_NE(both("all = Einsum<equation = \"bsh,csh->bch\">(y0, y0)\n"
                 "most = ReduceMax<axes = [1], keepdims = 1>(all)\ny = Add(y0, most)"),
            "");
}

// Returns a decoder whose causal mask is cut out of a large table of float32 numbers, as exporters
// write it for a fixed number of positions. `hole`: one key is hidden from one query.
onnx::ModelProto WithTable(bool hole) {
  const auto c = LoadCase(fmt::format("{}/rewrites/{}.onnxtxt", KVLIFT_TESTDATA_DIR, kCase));
  EXPECT_TRUE(c.ok()) << c.status();
  auto model = ParseModelText(
      Changed(c->before,
              {{"sees = LessOrEqual(cols2, rows2)",
                "p1 = Unsqueeze(p, axes_0)\nt1 = Unsqueeze(t, axes_0)\n"
                "part = Slice(table, p1, t1, axes_0)\nzero_1 = Unsqueeze(zero, axes_0)\n"
                "square = Slice(part, zero_1, t1, axes_1)\nsees = Cast<to = 9>(square)"},
               {kConstantsOfSource, std::string(kConstantsOfSource) + " float[1] table = {0},"}}));
  EXPECT_TRUE(model.ok()) << model.status();
  constexpr int64_t kSize = 70;
  for (auto& tensor : *model->mutable_graph()->mutable_initializer()) {
    if (tensor.name() != "table") continue;
    tensor.Clear();
    tensor.set_name("table");
    tensor.set_data_type(onnx::TensorProto::FLOAT);
    for (int k = 0; k < 2; ++k) tensor.add_dims(kSize);
    for (int64_t k = 0; k < kSize * kSize; ++k) {
      const float sees = k % kSize <= k / kSize && !(hole && k == 40 * kSize + 3) ? 1.0F : 0.0F;
      tensor.mutable_raw_data()->append(reinterpret_cast<const char*>(&sees), sizeof(sees));
    }
  }
  return *std::move(model);
}

TEST(Tables, OfACausalMaskAreRead) {
  const auto conversion = Convert(AsModel(WithTable(false)), {}, AllRules());
  ASSERT_TRUE(conversion.ok() && conversion->model) << conversion.status();
  const auto unproved = [&](bool hole) {
    return Unproved(ProveConversion(WithTable(hole), *conversion->model, conversion->manifest));
  };
  EXPECT_EQ(unproved(false), "");
  EXPECT_NE(unproved(true), "");
}

}  // namespace
}  // namespace kvlift
