// LIBS: pipeline rewrites
// SRCS: support/case_file.cc support/models.cc
// What is shown of a conversion, and what becomes of it (pipeline/pipeline.h).
#include "pipeline/pipeline.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "support/case_file.h"
#include "support/models.h"

namespace kvlift {
namespace {

using ::testing::HasSubstr;

constexpr char kProvable[] = "llama_optimum";

ProvedConversion Run(const Model& source, const ProvingOptions& proving,
                     const ConvertOptions& options = {}) {
  auto result = ConvertAndProve(source, options, AllRules(), proving);
  EXPECT_TRUE(result.ok()) << result.status();
  return result.ok() ? *std::move(result) : ProvedConversion();
}

TEST(PipelineTest, WhatIsProvedIsNotTested) {
  const ProvedConversion result = Run(LoadTestModel(kProvable), {Accept::kProved});
  EXPECT_EQ(result.equality, Equality::kProved);
  EXPECT_TRUE(result.accepted);
  EXPECT_FALSE(result.tests.has_value());
  EXPECT_EQ(result.conversion.manifest.equality, "proved");
  EXPECT_FALSE(result.conversion.manifest.proved.empty());
}

TEST(PipelineTest, PlansThatAreAskedForRun) {
  ProvingOptions proving;
  proving.plans = ProvingOptions::Plans::kQuick;
  const ProvedConversion result = Run(LoadTestModel(kProvable), proving);
  ASSERT_TRUE(result.tests.has_value());
  EXPECT_EQ(result.tests->verdict, VerdictKind::kEqual) << result.tests->reason;
  EXPECT_TRUE(result.accepted);
}

TEST(PipelineTest, ARefusedModelHasNothingToShow) {
  const ProvedConversion result = Run(LoadTestModel("neg_concat_reversed_ts"), {});
  EXPECT_EQ(result.equality, Equality::kNothing);
  EXPECT_FALSE(result.accepted);
  EXPECT_EQ(result.reason, "");
}

// The rule stands in the library: Python and --dry-run have it, too.
TEST(PipelineTest, TreesAreRefusedWhereSlotsMeanSomething) {
  ConvertOptions options;
  options.tree_mask = true;
  const ProvedConversion result = Run(LoadTestModel("llama_genai_gqa"), {}, options);
  EXPECT_EQ(result.conversion.status, ConvertStatus::kRefused);
  EXPECT_FALSE(result.accepted);
  ASSERT_FALSE(result.conversion.inspection.caches.empty());
  EXPECT_EQ(result.conversion.inspection.caches[0].reason->code, "KV235");
}

// Training Dropout cannot run twice alike: no fact about the attention behind it holds, and no plan
// runs.
Model WithTrainingDropout() {
  for (const std::string& path : CaseFiles()) {
    const auto c = LoadCase(path);
    if (!c.ok() || c->name != "decomposed_attention_keep_dropout_in_training") continue;
    auto proto = ParseModelText(c->before);
    EXPECT_TRUE(proto.ok()) << proto.status();
    return AsModel(*std::move(proto));
  }
  ADD_FAILURE() << "no such case";
  return {};
}

TEST(PipelineTest, AcceptSaysHowMuchMustBeShown) {
  const Model source = WithTrainingDropout();
  const ProvedConversion unproved = Run(source, {Accept::kUnproved});
  if (unproved.equality == Equality::kProved) GTEST_SKIP() << "all facts are proved";
  EXPECT_EQ(unproved.equality, Equality::kUnproved);
  EXPECT_TRUE(unproved.accepted);
  const ProvedConversion proved = Run(source, {Accept::kProved});
  EXPECT_FALSE(proved.accepted);
  EXPECT_THAT(proved.reason, HasSubstr("KV436"));
  EXPECT_EQ(proved.conversion.status, ConvertStatus::kRefused);
  const ProvedConversion tested = Run(source, {});
  EXPECT_EQ(tested.equality, Equality::kInconclusive);
  EXPECT_FALSE(tested.accepted);
  EXPECT_FALSE(tested.conversion.inspection.caches[0].reason->nodes.empty());
}

}  // namespace
}  // namespace kvlift
