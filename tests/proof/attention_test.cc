// LIBS: proof rewrites
// SRCS: support/case_edits.cc support/case_file.cc support/models.cc
// What an attention is read through, and what not: a fact lists the lemmas that it rests on.
#include <algorithm>
#include <string>

#include "proof/lemmas/scale_moved.h"
#include "support/proof_pair.h"

namespace kvlift {
namespace {

constexpr char kProbs[] = "probs = Softmax<axis = -1>(masked)";
constexpr char kScores[] = "scores = Mul(product, scale)";

Proof WithSource(const TextChanges& before) { return ProofOfPair(kCase, before, {}); }

bool Lists(const Proof& proof, const std::string& lemma) {
  return std::any_of(proof.facts.begin(), proof.facts.end(), [&](const ProofFact& fact) {
    return std::find(fact.lemmas.begin(), fact.lemmas.end(), lemma) != fact.lemmas.end();
  });
}

// Both precisions are known, and no rounding of numbers makes them the same.
TEST(SoftmaxPrecision, AnotherOneIsRefuted) {
  const Proof proof =
      ProofOfPair(kCase, {},
                  {{"Attention <is_causal: int = 1>",
                    "Attention <is_causal: int = 1, softmax_precision: int = 10>"}});
  const auto fact = std::find_if(proof.facts.begin(), proof.facts.end(), [](const ProofFact& f) {
    return f.text == "has the source's scale, softcap and precision of the softmax";
  });
  ASSERT_NE(fact, proof.facts.end());
  EXPECT_EQ(fact->status, FactStatus::kRefuted) << fact->why_not;
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
  EXPECT_TRUE(proof.assumptions.Has(AssumptionKind::kFinite, "context"));
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

TEST(LookedThrough, ASoftmaxThatIsWrittenOutIs) {
  const TextChanges constants = {
      {"float none0 = {0}", "float none0 = {0}, int64[1] last = {-1}, int64[1] two = {2}"}};
  const auto with = [&](const std::string& exponent, const std::string& axis) {
    TextChanges changes = constants;
    changes.emplace_back(kProbs, "top = ReduceMax(masked, last)\n  less = Sub(masked, top)\n" +
                                     fmt::format("  e = Exp({})\n  sum = ReduceSum(e, {})\n"
                                                 "  probs = Div(e, sum)",
                                                 exponent, axis));
    return WithSource(changes);
  };
  const Proof proof = with("less", "last");
  EXPECT_EQ(Unproved(proof), "");
  EXPECT_TRUE(Lists(proof, "written-softmax"));
  EXPECT_NE(Unproved(with("masked", "last")), "") << "large scores overflow";
  EXPECT_NE(Unproved(with("less", "two")), "") << "the sum is that of another row";
}

TEST(LookedThrough, AMaskBehindTheSoftmaxIs) {
  const TextChanges constants = {{"float none0 = {0}",
                                  "float none0 = {0}, int64[1] last = {-1}, int64[1] two = {2}, "
                                  "float one_share = {1}"}};
  const auto with = [&](const std::string& summed, const std::string& axis,
                        const std::string& guard) {
    TextChanges changes = constants;
    changes.emplace_back(kProbs,
                         fmt::format("all = Softmax<axis = -1>(masked)\n"
                                     "  shown = Cast<to = 1>(sees)\n  left = Mul(all, shown)\n"
                                     "  total = ReduceSum({}, {})\n  some = Greater({}, none0)\n"
                                     "  safe = Where(some, total, one_share)\n"
                                     "  shares = Div(left, safe)\n"
                                     "  probs = Where(some, shares, none0)",
                                     summed, axis, guard));
    return WithSource(changes);
  };
  const Proof proof = with("left", "last", "total");
  EXPECT_EQ(Unproved(proof), "");
  EXPECT_TRUE(Lists(proof, "renormalised-weights"));
  EXPECT_TRUE(proof.assumptions.Has(AssumptionKind::kScoreRange, "context"));
  EXPECT_NE(Unproved(with("all", "last", "total")), "") << "the sum is that of all weights";
  EXPECT_NE(Unproved(with("left", "two", "total")), "") << "the sum is that of another row";
  EXPECT_NE(Unproved(with("left", "last", "shown")), "") << "the guard tests another number";
}

// Half types lose weights that are small beside those of hidden keys.
TEST(LookedThrough, AMaskBehindTheSoftmaxInHalfPrecisionIsNot) {
  const TextChanges constants = {{"float none0 = {0}", "float none0 = {0}, int64[1] last = {-1}"}};
  for (const int type : {10, 16}) {
    for (const bool in_softmax : {false, true}) {
      TextChanges changes = constants;
      const std::string softmax =
          in_softmax ? fmt::format(
                           "half0 = Cast<to = {}>(masked)\n"
                           "  half1 = Softmax<axis = -1>(half0)\n"
                           "  all = Cast<to = 1>(half1)\n  shown = Cast<to = 1>(sees)\n",
                           type)
                     : fmt::format(
                           "whole = Softmax<axis = -1>(masked)\n"
                           "  all = Cast<to = {0}>(whole)\n  shown = Cast<to = {0}>(sees)\n",
                           type);
      changes.emplace_back(kProbs, softmax +
                                       "  left = Mul(all, shown)\n"
                                       "  total = ReduceSum(left, last)\n"
                                       "  shares = Div(left, total)\n"
                                       "  probs = Cast<to = 1>(shares)");
      EXPECT_NE(Unproved(WithSource(changes)), "") << type << in_softmax;
    }
  }
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

// Exporters of PyTorch write the root of a constant that is cast to the type of the queries, which
// may be taken from a sequence of parts.
TEST(Scales, AreReadThroughCastsToTheTypeOfAnotherValue) {
  for (const char* like : {"product", "part"}) {
    const TextChanges changes = {
        {kScores, fmt::format("parts = SplitToSequence<axis = -1>(product, two)\n"
                              "  part = SequenceAt(parts, first)\n"
                              "  cast = CastLike(width, {})\n  root = Sqrt(cast)\n"
                              "  scores = Mul(product, root)",
                              like)},
        {"float none0 = {0}",
         "float none0 = {0}, double width = {0.25}, int64 two = {2}, int64 first = {0}"}};
    EXPECT_EQ(Unproved(WithSource(changes)), "") << like;
    const Proof other = WithSource({changes[0],
                                    {"float none0 = {0}",
                                     "float none0 = {0}, double width = {0.26}, "
                                     "int64 two = {2}, int64 first = {0}"}});
    EXPECT_NE(Unproved(other), "") << like;
  }
}

// A factor in the scores, or a cap, that is no number moves nowhere: |inf - 5| <= 1e-6 inf holds.
TEST(Scales, AreFinite) {
  EXPECT_NE(Unproved(WithSource({{"float scale = {0.5}", "float scale = {inf}"}})), "");
  EXPECT_NE(Unproved(WithSource({{"float scale = {0.5}", "float scale = {nan}"}})), "");
  const char* cap = "float cap = {20}";
  EXPECT_EQ(Unproved(ProofOfPair("decomposed_attention_softcap", {}, {})), "");
  EXPECT_NE(Unproved(ProofOfPair("decomposed_attention_softcap", {{cap, "float cap = {inf}"}}, {})),
            "");
  // A product of finite numbers may be none.
  EXPECT_NE(Unproved(WithSource({{kScores,
                                  "huge2 = Mul(huge, huge)\n  more = Mul(product, huge2)\n"
                                  "  scores = Mul(more, scale)"},
                                 {"float none0 = {0}", "float none0 = {0}, float huge = {1e30}"}})),
            "");
}

TEST(Scales, AreMoreThanZero) {
  const TextChanges none = {{"<is_causal: int = 1>", "<is_causal: int = 1, scale: float = 0>"}};
  EXPECT_NE(Unproved(ProofOfPair(kCase, {{"float scale = {0.5}", "float scale = {0}"}}, none)), "");
  const TextChanges turned = {
      {"<is_causal: int = 1>", "<is_causal: int = 1, scale: float = -0.5>"}};
  EXPECT_NE(Unproved(ProofOfPair(kCase, {{"float scale = {0.5}", "float scale = {-0.5}"}}, turned)),
            "");
}

TEST(Scales, AreTheSameButForRounding) {
  for (const char* scale : {"0.5000002", "0.4999998", "0.500001"}) {
    EXPECT_NE(
        Unproved(WithSource({{"float scale = {0.5}", fmt::format("float scale = {{{}}}", scale)}})),
        "")
        << scale;
  }
  // A division by 3 and a product with 1.5, each a number of its own.
  EXPECT_EQ(
      Unproved(WithSource(
          {{kScores, "third = Div(product, three)\n  scores = Mul(third, more)"},
           {"float none0 = {0}", "float none0 = {0}, float three = {3}, float more = {1.5}"}})),
      "");
}

// A product of integers wraps around, and their quotient drops the rest.
TEST(Scales, AreNotReadFromIntegers) {
  const TextChanges after = {{"float[B,S,16] q", "int16[B,S,16] q"},
                             {"q4 = Reshape (q, q_shape)",
                              "q_real = Cast <to: int = 1> (q)\n q4 = Reshape (q_real, q_shape)"},
                             {"<is_causal: int = 1>", "<is_causal: int = 1, scale: float = 1>"}};
  for (const char* op : {"Mul(q, two)", "Div(q, half)"}) {
    const TextChanges before = {
        {"float[B,S,16] q", "int16[B,S,16] q"},
        {"float scale = {0.5}", "float scale = {0.5}, int16 two = {2}, int16 half = {1}"},
        {"q4 = Reshape(q, q_shape)", fmt::format("q_whole = {}\n  q_real = Cast<to = 1>(q_whole)\n"
                                                 "  q4 = Reshape(q_real, q_shape)",
                                                 op)}};
    EXPECT_NE(Unproved(ProofOfPair(kCase, before, after)), "") << op;
  }
}

// Behind a mask that is added first: a factor that turns it, one that lifts it, a cap.
TEST(Masks, MayBeScaledOnlyWhereTheyStillHide) {
  const char* masked = "masked = Add(scores, mask)";
  const auto behind = [&](const std::string& scale, const std::string& factor,
                          const std::string& low) {
    return Unproved(
        WithSource({{masked, "hidden = Add(scores, mask)\n  masked = Mul(hidden, behind)"},
                    {"float scale = {0.5}",
                     fmt::format("float scale = {{{}}}, float behind = {{{}}}", scale, factor)},
                    {"float low = {-inf}", fmt::format("float low = {{{}}}", low)}}));
  };
  EXPECT_EQ(behind("2", "0.25", "-inf"), "");
  EXPECT_EQ(behind("2", "0.25", "-3.4e38"), "");
  EXPECT_NE(behind("-0.5", "-1", "-inf"), "") << "inf - inf shows the key alone";
  EXPECT_NE(behind("-0.5", "-1", "-3.4e38"), "");
  EXPECT_NE(behind("5000", "0.0001", "-10000.0"), "") << "-1 hides nothing";
  EXPECT_EQ(behind("5000", "0.0001", "-3.4e38"), "");
}

TEST(Masks, SelectedBeforeAFactorAreTheSame) {
  const auto selected = [&](const std::string& scale, const std::string& factor) {
    return Unproved(
        WithSource({{"masked = Add(scores, mask)",
                     "hidden = Where(visible, scores, low)\n  masked = Mul(hidden, behind)"},
                    {"float scale = {0.5}",
                     fmt::format("float scale = {{{}}}, float behind = {{{}}}", scale, factor)}}));
  };
  EXPECT_EQ(selected("2", "0.25"), "");
  EXPECT_NE(selected("-0.5", "-1"), "");
}

TEST(Masks, AreNotCapped) {
  const TextChanges first = {
      {"tanh = Tanh(small)", "hidden = Add(small, mask)\n  tanh = Tanh(hidden)"},
      {"masked = Add(capped, mask)", "masked = Identity(capped)"}};
  EXPECT_NE(Unproved(ProofOfPair("decomposed_attention_softcap", first, {})), "")
      << "tanh(-inf) is -1";
}

TEST(Biases, AreNotScaled) {
  const char* name = "decomposed_attention_bias";
  EXPECT_EQ(Unproved(ProofOfPair(name, {}, {})), "");
  const TextChanges scaled = {
      {"masked = Add(scores, bias)", "sum = Add(scores, bias)\n  masked = Mul(sum, behind)"},
      {"float scale = {0.5}", "float scale = {0.5}, float behind = {1.0000005}"}};
  EXPECT_NE(Unproved(ProofOfPair(name, scaled, {})), "");
}

TEST(Lists, HeadsThatAreRows) {
  EXPECT_TRUE(Lists(ProofOfPair("decomposed_attention_ort", {}, {}), "heads-regrouped"));
}

// The operator broadcasts no table.
TEST(Rotations, HaveATableForEachSequence) {
  const char* name = "growing_concat_rotary_fused";
  EXPECT_EQ(Unproved(ProofOfPair(name, {}, {})), "");
  const TextChanges shared = {
      {R"((k_plain, "/kvlift/shared/cos_of_each")", R"((k_plain, "/kvlift/shared/cos")"},
      {R"("/kvlift/shared/sin_of_each"))", R"("/kvlift/shared/sin"))"},
      {R"((q_plain, "/kvlift/shared/cos_of_each")", R"((q_plain, "/kvlift/shared/cos")"}};
  EXPECT_NE(Unproved(ProofOfPair(name, {}, shared)), "");
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

// Products that stay in the range of their type in the source have to stay there in the conversion.
TEST(Scales, ThatMoveFarAreNoneOfTheLemma) {
  const auto with = [](const std::string& factor, const std::string& rest) {
    return ProofOfPair("decomposed_attention_padding", {},
                       {{"q_heads = Transpose <perm: ints = [0, 2, 1, 3]> (q4)",
                         "q_unscaled = Transpose <perm: ints = [0, 2, 1, 3]> (q4)\n"
                         "q_heads = Mul (q_unscaled, far)"},
                        {"int64[3] y_shape =  {0,0,16},",
                         "int64[3] y_shape =  {0,0,16}, float far = {" + factor + "},"},
                        {"context = Attention <is_causal: int = 1>",
                         "context = Attention <is_causal: int = 1, scale: float = " + rest + ">"}});
  };
  const Proof near = with("4.0", "0.125");
  EXPECT_EQ(Unproved(near), "");
  EXPECT_TRUE(near.assumptions.Has(AssumptionKind::kFinite, "numbers"));
  EXPECT_NE(Unproved(with("1.329227995784916e36", "3.76158192263132e-37")), "");
}

// Factors that cancel each other may leave the range in between.
TEST(Scales, ThatCancelEachOtherStayNearOnTheWay) {
  const auto with_query = [](const std::string& first, const std::string& second) {
    return ProofOfPair(
        "decomposed_attention_padding", {},
        {{"q_heads = Transpose <perm: ints = [0, 2, 1, 3]> (q4)",
          "q_plain = Transpose <perm: ints = [0, 2, 1, 3]> (q4)\n"
          "q_far = Mul (q_plain, there)\nq_heads = Mul (q_far, back)"},
         {"int64[3] y_shape =  {0,0,16},", "int64[3] y_shape =  {0,0,16}, float there = {" + first +
                                               "}, float back = {" + second + "},"}});
  };
  EXPECT_EQ(Unproved(with_query("4.0", "0.25")), "");
  EXPECT_NE(Unproved(with_query("1e37", "1e-37")), "");
  EXPECT_NE(Unproved(with_query("1e-37", "1e37")), "");
  const auto with_scores = [](const std::string& first, const std::string& second) {
    return WithSource({{"scores = Mul(product, scale)",
                        "far = Mul(product, there)\nplain = Mul(far, back)\n"
                        "scores = Mul(plain, scale)"},
                       {"float scale = {0.5},", "float scale = {0.5}, float there = {" + first +
                                                    "}, float back = {" + second + "},"}});
  };
  EXPECT_EQ(Unproved(with_scores("0.25", "4.0")), "");
  EXPECT_NE(Unproved(with_scores("1e37", "1e-37")), "");
  EXPECT_NE(Unproved(with_scores("1e-37", "1e37")), "");
}

// A number of float16 has 2^8 as the limit, whatever the type of the product is.
TEST(Scales, HaveTheLimitOfTheTypeInWhichTheyMultiply) {
  const auto chain = [](int32_t type) {
    const Multiplication there{1024, type}, back{1.0 / 1024, type};
    ProductScale scale;
    scale.type = onnx::TensorProto::FLOAT;
    scale.query = RangeOfChain({there, back});
    return scale;
  };
  ProductScale plain;
  plain.type = onnx::TensorProto::FLOAT;
  EXPECT_TRUE(AreNear(chain(onnx::TensorProto::FLOAT), plain));
  EXPECT_FALSE(AreNear(chain(onnx::TensorProto::FLOAT16), plain));
}

TEST(Refuted, ScalesAndWeights) {
  const Proof proof = WithSource({{"float scale = {0.5}", "float scale = {0.25}"}});
  EXPECT_TRUE(std::any_of(proof.facts.begin(), proof.facts.end(), [](const ProofFact& fact) {
    return fact.status == FactStatus::kRefuted;
  }));
}

}  // namespace
}  // namespace kvlift
