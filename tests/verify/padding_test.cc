// LIBS: rewrites verify
// SRCS: support/case_edits.cc support/case_file.cc support/models.cc
// What the ledger says of padding tokens and of sequences of different lengths.
#include <algorithm>
#include <string>

#include "absl/strings/str_replace.h"
#include "gtest/gtest.h"
#include "support/case_file.h"
#include "support/models.h"
#include "verify/judge/verify.h"

namespace kvlift {
namespace {

std::string CaseText(const std::string& name) {
  const auto loaded = LoadCase(std::string(KVLIFT_TESTDATA_DIR) + "/rewrites/" + name + ".onnxtxt");
  EXPECT_TRUE(loaded.ok()) << loaded.status();
  return loaded.ok() ? loaded->before : std::string();
}

struct Pair {
  Model before, after;
  Manifest relation;
};

// Converts a model, and forgets what the conversion says of padding tokens.
Pair Converted(const std::string& text) {
  const auto model = ParseModelText(text);
  EXPECT_TRUE(model.ok()) << model.status();
  Pair pair;
  pair.before = AsModel(*model);
  auto converted = Convert(pair.before, ConvertOptions(), AllRules());
  EXPECT_TRUE(converted.ok() && converted->model);
  if (!converted.ok() || !converted->model) return pair;
  pair.after = AsModel(*converted->model);
  pair.relation = converted->manifest;
  std::erase_if(pair.relation.preconditions,
                [](const Precondition& p) { return p.code == "KV236"; });
  return pair;
}

VerifyReport Judged(const Pair& pair) {
  const auto report = Verify(pair.before, pair.after, pair.relation, VerifyOptions());
  EXPECT_TRUE(report.ok()) << report.status();
  return report.ok() ? *report : VerifyReport();
}

TEST(Padding, IsExcludedWhereSomethingTakesInAllRowsOfACache) {
  for (const char* name : {"growing_concat_mean_of_rows", "growing_concat_largest_of_rows"}) {
    const VerifyReport report = Judged(Converted(CaseText(name)));
    EXPECT_TRUE(Accepts(report.verdict, Accept::kTested)) << name;
    EXPECT_TRUE(report.assumptions.Has(AssumptionKind::kPadding, "")) << name;
  }
}

// Adds the value `last`, which the nodes `count` make, to the result of a decoder.
std::string With(const std::string& count) {
  return absl::StrReplaceAll(CaseText("decomposed_attention_gqa"),
                             {{"y = Reshape(context4, y_shape)",
                               count + " number = Cast<to = 1>(last)\n" +
                                   "flat = Reshape(context4, y_shape)\n y = Add(flat, number)"}});
}

// Numbers that are made of sizes alone, and depend on how many tokens a step has.
TEST(Padding, IsExcludedWhereTheNumberOfTokensMatters) {
  const char* const counts[] = {
      "last = ArgMax<axis = 0, keepdims = 0>(rows)\n",
      "places = NonZero(sees)\n dims = Shape(places)\n last = Gather(dims, one)\n",
  };
  for (const char* count : counts) {
    const VerifyReport report = Judged(Converted(With(count)));
    EXPECT_TRUE(Accepts(report.verdict, Accept::kTested)) << count;
    EXPECT_TRUE(report.assumptions.Has(AssumptionKind::kPadding, "")) << count;
  }
}

// The number of keys that each query sees does not depend on later tokens.
TEST(Padding, IsNotExcludedWhereTheKeysOfEachQueryAreCounted) {
  const VerifyReport report = Judged(Converted(
      With("flags = Cast<to = 1>(sees)\n last = ReduceSum<keepdims = 1>(flags, axes_1)\n")));
  EXPECT_EQ(report.verdict, VerdictKind::kEqual);
  EXPECT_FALSE(report.assumptions.Has(AssumptionKind::kPadding, ""));
}

TEST(Padding, IsNotExcludedInAnOrdinaryDecoder) {
  const VerifyReport report = Judged(Converted(CaseText("decomposed_attention_gqa")));
  EXPECT_EQ(report.verdict, VerdictKind::kEqual);
  const auto pads = std::find_if(report.plans.begin(), report.plans.end(),
                                 [](const PlanResult& plan) { return plan.name == "right pads"; });
  ASSERT_NE(pads, report.plans.end());
  EXPECT_GT(pads->steps, 0);
}

// GroupQueryAttention takes the length of the longest sequence, so that steps of sequences of
// different lengths are run.
TEST(Lengths, AreThoseOfTheLongestSequenceForGroupQueryAttention) {
  Pair pair = Converted(CaseText("attention_op_group_query_buffer_sink"));
  const VerifyReport right = Judged(pair);
  EXPECT_TRUE(Accepts(right.verdict, Accept::kTested));
  const auto ragged = std::find_if(right.plans.begin(), right.plans.end(),
                                   [](const PlanResult& plan) { return plan.name == "ragged"; });
  ASSERT_NE(ragged, right.plans.end());
  EXPECT_GT(ragged->steps, 0);
  onnx::ModelProto wrong = *pair.after.proto;
  int changed = 0;
  for (auto& node : *wrong.mutable_graph()->mutable_node()) {
    if (node.op_type() != "ReduceMax") continue;
    node.set_op_type("ReduceMin");
    ++changed;
  }
  ASSERT_GT(changed, 0);
  pair.after = AsModel(wrong);
  EXPECT_EQ(Judged(pair).verdict, VerdictKind::kDifferent);
}

}  // namespace
}  // namespace kvlift
