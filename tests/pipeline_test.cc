// LIBS: pipeline rewrites
// SRCS: support/case_edits.cc support/case_file.cc support/models.cc
// What is shown of a conversion, and what becomes of it (pipeline/pipeline.h).
#include "pipeline/pipeline.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <string>

#include "base/coded.h"
#include "fmt/format.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "support/case_file.h"
#include "support/models.h"

namespace kvlift {
namespace {

using ::testing::HasSubstr;

constexpr char kProvable[] = "llama_optimum";

ProvingOptions Asking(ConvertAccept accept) {
  ProvingOptions proving;
  proving.accept = accept;
  return proving;
}

ProvedConversion Prove(const Model& source, const ProvingOptions& proving,
                       const ConvertOptions& options = {}) {
  auto result = ConvertAndProve(source, options, AllRules(), proving);
  EXPECT_TRUE(result.ok()) << result.status();
  return result.ok() ? *std::move(result) : ProvedConversion();
}

TEST(PipelineTest, WhatIsProvedIsNotTested) {
  const ProvedConversion result = Prove(LoadTestModel(kProvable), Asking(ConvertAccept::kProved));
  EXPECT_EQ(result.equality, ConversionVerdict::kProved);
  EXPECT_TRUE(result.accepted);
  EXPECT_FALSE(result.tests.has_value());
  EXPECT_EQ(result.conversion.manifest.equality, ShownEquality::kProved);
  EXPECT_FALSE(result.conversion.manifest.proved.empty());
}

TEST(PipelineTest, PlansThatAreAskedForRun) {
  ProvingOptions proving;
  proving.plans = ProvingOptions::Plans::kQuick;
  const ProvedConversion result = Prove(LoadTestModel(kProvable), proving);
  ASSERT_TRUE(result.tests.has_value());
  EXPECT_EQ(result.tests->verdict, VerdictKind::kEqual) << result.tests->reason;
  EXPECT_TRUE(result.accepted);
}

// A step with padding tokens has another number of tokens, so the manifest excludes them, and plans
// that are asked for do without.
TEST(PipelineTest, PaddingThatReachesRealTokensIsExcluded) {
  const auto c = LoadCase(KVLIFT_TESTDATA_DIR "/rewrites/decomposed_attention_padding.onnxtxt");
  ASSERT_TRUE(c.ok()) << c.status();
  const std::string last = "y = Reshape(context4, y_shape)";
  const auto with = [&](const std::string& end) {
    std::string text = c->before;
    text.replace(text.find(last), last.size(), end);
    ProvingOptions proving;
    proving.plans = ProvingOptions::Plans::kQuick;
    return Prove(AsModel(*ParseModelText(text)), proving);
  };
  const auto excludes = [](const ProvedConversion& result) {
    const auto& all = result.conversion.manifest.preconditions;
    return std::any_of(all.begin(), all.end(),
                       [](const Precondition& p) { return p.code == "KV236"; });
  };
  EXPECT_FALSE(excludes(with(last)));
  const ProvedConversion result = with(
      "y0 = Reshape(context4, y_shape)\nn = Shape<start = 1, end = 2>(q)\n"
      "number = Cast<to = 1>(n)\ny = Mul(y0, number)");
  EXPECT_TRUE(excludes(result));
  EXPECT_TRUE(result.accepted) << result.reason;
  EXPECT_EQ(result.tests->verdict, VerdictKind::kEqual) << result.tests->reason;
}

// ONNX's inference sees some contradictions only once the caches have a fixed size.
TEST(PipelineTest, DeclaredSizesThatOperatorsContradictAreTheSources) {
  struct Edit {
    const char *model, *value;
    int axis;
    int64_t size;
  };
  for (const Edit& edit : {Edit{"decomposed_attention_mask_of_keys", "y", 1, 2},
                           Edit{"attention_op_group_query_mask_read_elsewhere", "y", 2, 8}}) {
    const auto c = LoadCase(fmt::format("{}/rewrites/{}.onnxtxt", KVLIFT_TESTDATA_DIR, edit.model));
    ASSERT_TRUE(c.ok()) << c.status();
    auto proto = *ParseModelText(c->before);
    for (auto* values :
         {proto.mutable_graph()->mutable_input(), proto.mutable_graph()->mutable_output()}) {
      for (onnx::ValueInfoProto& value : *values) {
        if (value.name() != edit.value) continue;
        auto* shape = value.mutable_type()->mutable_tensor_type()->mutable_shape();
        shape->mutable_dim(edit.axis)->set_dim_value(edit.size);
      }
    }
    Model source;
    source.proto = std::make_shared<const onnx::ModelProto>(std::move(proto));
    const auto result = ConvertAndProve(source, {}, AllRules(), {});
    ASSERT_FALSE(result.ok()) << edit.model;
    EXPECT_EQ(CodeOf(result.status()), "KV031") << result.status();
  }
}

// ONNX does not know the size of what an operator of com.microsoft gives; the product behind it
// does not fit.
TEST(PipelineTest, AProductThatDoesNotFitAnOperatorOfComMicrosoft) {
  const auto proto = ParseModelText(R"(<ir_version: 8, opset_import: ["" : 17, "com.microsoft" : 1]>
decoder (float[B,S,16] x, float[16,48] w, float[24,16] v, float[2,B,4,P,4] past)
  => (float[B,S,16] y, float[2,B,4,T,4] present) {
  a, present = com.microsoft.Attention <num_heads = 4, unidirectional = 1> (x, w, , , past)
  y = MatMul (a, v)
})");
  ASSERT_TRUE(proto.ok()) << proto.status();
  const auto result = ConvertAndProve(AsModel(*proto), {}, AllRules(), {});
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(CodeOf(result.status()), "KV031") << result.status();
}

TEST(PipelineTest, ARefusedModelHasNothingToShow) {
  const ProvedConversion result = Prove(LoadTestModel("neg_concat_reversed_ts"), {});
  EXPECT_EQ(result.equality, ConversionVerdict::kNothing);
  EXPECT_FALSE(result.accepted);
  EXPECT_EQ(result.reason, "");
}

// The rule stands in the library: Python and --dry-run have it, too.
TEST(PipelineTest, TreesAreRefusedWhereSlotsMeanSomething) {
  ConvertOptions options;
  options.tree_mask = true;
  const ProvedConversion result = Prove(LoadTestModel("llama_genai_gqa"), {}, options);
  EXPECT_EQ(result.conversion.status, ConvertStatus::kRefused);
  EXPECT_FALSE(result.accepted);
  ASSERT_FALSE(result.conversion.inspection.caches.empty());
  EXPECT_EQ(result.conversion.inspection.caches[0].reason->code, "KV235");
}

// A text case whose conversion leaves a fact open; nullopt if there is none.
std::optional<Model> WithOpenFact() {
  for (const std::string& path : CaseFiles()) {
    const auto c = LoadCase(path);
    if (!c.ok() || !c->after) continue;
    auto proto = ParseModelText(c->before);
    if (!proto.ok()) continue;
    const Model source = AsModel(*std::move(proto));
    const auto result =
        ConvertAndProve(source, c->options, AllRules(), Asking(ConvertAccept::kUnproved));
    if (result.ok() && result->equality == ConversionVerdict::kUnproved) return source;
  }
  return std::nullopt;
}

TEST(PipelineTest, AcceptSaysHowMuchMustBeShown) {
  const std::optional<Model> source = WithOpenFact();
  if (!source) GTEST_SKIP() << "all facts of all cases are proved";
  const ProvedConversion unproved = Prove(*source, Asking(ConvertAccept::kUnproved));
  EXPECT_EQ(unproved.equality, ConversionVerdict::kUnproved);
  EXPECT_TRUE(unproved.accepted);
  const ProvedConversion proved = Prove(*source, Asking(ConvertAccept::kProved));
  EXPECT_FALSE(proved.accepted);
  EXPECT_THAT(proved.reason, HasSubstr("KV436"));
  EXPECT_EQ(proved.conversion.status, ConvertStatus::kRefused);
  EXPECT_FALSE(proved.conversion.inspection.caches[0].reason->nodes.empty());
  const ProvedConversion tested = Prove(*source, {});
  ASSERT_TRUE(tested.tests.has_value());
  EXPECT_EQ(tested.accepted, tested.equality == ConversionVerdict::kTested) << tested.reason;
}

}  // namespace
}  // namespace kvlift
