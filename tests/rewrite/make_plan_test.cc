// LIBS: rewrites
// SRCS: support/models.cc support/case_edits.cc support/case_file.cc
// A plan says as data what becomes of each cache and each attention, before any node is made.
#include "rewrite/judge/make_plan.h"

#include <string>
#include <variant>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "rewrite/emit/emit_plan.h"
#include "support/models.h"

namespace kvlift {
namespace {

using ::testing::Field;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using ::testing::VariantWith;

constexpr char kDecoder[] = "llama_optimum";

Analysis AnalysisOf(const std::string& name) {
  auto analysis = Analyse(LoadTestModel(name), AllRules());
  EXPECT_TRUE(analysis.ok()) << analysis.status();
  return *std::move(analysis);
}

ConversionPlan PlanFor(const Analysis& analysis, const ConvertOptions& options = {}) {
  return MakePlan(analysis, ResolvedOptions(options));
}

TEST(MakePlan, SaysWhatBecomesOfEachPart) {
  const Analysis a = AnalysisOf(kDecoder);
  const ConversionPlan plan = PlanFor(a);
  ASSERT_FALSE(plan.refusal) << plan.refusal->finding.text;
  EXPECT_FALSE(plan.uniform);
  EXPECT_THAT(plan.index, VariantWith<IndexInputs>(
                              Field(&IndexInputs::write_indices, std::string("write_indices"))));
  ASSERT_THAT(plan.writes, SizeIs(4));
  for (const PlannedWrite& write : plan.writes) {
    EXPECT_TRUE(std::holds_alternative<SharedIndex>(write.index));
    EXPECT_TRUE(std::holds_alternative<RowsInSourceLayout>(write.rows));
  }
  ASSERT_THAT(plan.attention, SizeIs(2));
  for (size_t k = 0; k < plan.attention.size(); ++k) {
    const PlannedAttention* attention = plan.replaced(k);
    ASSERT_NE(attention, nullptr);
    EXPECT_TRUE(std::holds_alternative<ValidRows>(attention->keys));
    EXPECT_TRUE(attention->is_causal);
    EXPECT_TRUE(attention->mask.has_value());  // padding
    EXPECT_FALSE(attention->groups_as_tokens);
  }
  EXPECT_EQ(plan.mask_width, MaskWidth::kCapacity);
  EXPECT_THAT(plan.dropped, IsEmpty());
}

TEST(MakePlan, DerivesTheIndexForGenai) {
  const Analysis a = AnalysisOf(kDecoder);
  ConvertOptions options;
  options.target = Target::kGenai;
  const ConversionPlan plan = PlanFor(a, options);
  ASSERT_FALSE(plan.refusal) << plan.refusal->finding.text;
  EXPECT_TRUE(plan.uniform);
  EXPECT_TRUE(plan.uniform_reason.has_value());
  EXPECT_THAT(plan.index, VariantWith<DerivedIndex>(
                              Field(&DerivedIndex::input, a.graph->Find("attention_mask"))));
  for (size_t k = 0; k < plan.attention.size(); ++k) {
    EXPECT_TRUE(std::holds_alternative<SourceRows>(plan.replaced(k)->keys));
  }
  EXPECT_EQ(plan.mask_width, MaskWidth::kTotalLength);
}

TEST(MakePlan, DropsMasksThatNothingReadsWithoutPadding) {
  const Analysis a = AnalysisOf(kDecoder);
  ConvertOptions options;
  options.padding = Padding::kNone;
  const ConversionPlan plan = PlanFor(a, options);
  ASSERT_FALSE(plan.refusal) << plan.refusal->finding.text;
  const ValueId mask = a.graph->Find("attention_mask");
  EXPECT_TRUE(plan.dropped.contains(mask));
  ASSERT_TRUE(plan.assumed.contains(mask));
  EXPECT_EQ(plan.assumed.at(mask), 1);
  for (size_t k = 0; k < plan.attention.size(); ++k) {
    EXPECT_FALSE(plan.replaced(k)->mask.has_value());
  }
}

TEST(MakePlan, SaysHowCachesAreStoredAndNamed) {
  const Analysis a = AnalysisOf(kDecoder);
  ConvertOptions options;
  options.quantize_cache = ReadCacheQuantization("int8:4");
  options.io_names = IoNames::kStatic;
  options.rotary = Rotary::kFused;
  const ConversionPlan plan = PlanFor(a, options);
  ASSERT_FALSE(plan.refusal) << plan.refusal->finding.text;
  ASSERT_TRUE(plan.quantization.has_value());
  EXPECT_EQ(plan.quantization->how.group, 4);
  EXPECT_FALSE(plan.quantization->as_source);
  EXPECT_FALSE(plan.one_tensor);
  EXPECT_THAT(plan.names, SizeIs(8));  // of past and present
  EXPECT_EQ(plan.names.at(a.caches[0].candidate.pair.past), "key_cache.0");
  EXPECT_THAT(plan.rotations, SizeIs(4));  // of queries and keys
}

TEST(MakePlan, RefusesStorageThatDoesNotFit) {
  const Analysis a = AnalysisOf(kDecoder);
  ConvertOptions options;
  options.cache_tensors = CacheTensors::kPacked;
  const ConversionPlan plan = PlanFor(a, options);
  ASSERT_TRUE(plan.refusal.has_value());
  EXPECT_EQ(plan.refusal->cause, PlanRefusal::Cause::kOption);
  EXPECT_EQ(plan.refusal->finding.code, "KV246");
}

TEST(MakePlan, OneRefusalForOptionsThatDoNotFit) {
  const Analysis a = AnalysisOf(kDecoder);
  ConvertOptions options;
  options.mask = MaskForm::kCausal;
  const ConversionPlan plan = PlanFor(a, options);
  ASSERT_TRUE(plan.refusal.has_value());
  EXPECT_EQ(plan.refusal->cause, PlanRefusal::Cause::kOption);
  EXPECT_EQ(plan.refusal->finding.code, "KV224");
}

TEST(MakePlan, LeavesNothingBehindForOtherPlans) {
  const Analysis a = AnalysisOf(kDecoder);
  const auto before = EmitPlan(a, PlanFor(a));
  ASSERT_TRUE(before.ok()) << before.status();
  ConvertOptions other;
  other.target = Target::kGenaiStatic;
  const auto between = EmitPlan(a, PlanFor(a, other));
  ASSERT_TRUE(between.ok()) << between.status();
  const auto after = EmitPlan(a, PlanFor(a));
  ASSERT_TRUE(after.ok()) << after.status();
  ASSERT_EQ(before->patch.new_nodes.size(), after->patch.new_nodes.size());
  EXPECT_NE(before->patch.new_nodes.size(), between->patch.new_nodes.size());
  for (size_t k = 0; k < before->patch.new_nodes.size(); ++k) {
    EXPECT_EQ(before->patch.new_nodes[k].SerializeAsString(),
              after->patch.new_nodes[k].SerializeAsString());
  }
}

TEST(Resolve, LeavesNothingOpen) {
  ConvertOptions options;
  EXPECT_EQ(ResolvedOptions(options).control, Control::kInput);
  EXPECT_EQ(ResolvedOptions(options).read, ReadForm::kPrefix);
  EXPECT_EQ(ResolvedOptions(options).rotary, Rotary::kKeep);
  EXPECT_EQ(ResolvedOptions(options).padding, Padding::kKeep);
  options.target = Target::kGenai;
  EXPECT_EQ(ResolvedOptions(options).control, Control::kDerived);
  options.target = Target::kOrt;
  EXPECT_EQ(ResolvedOptions(options).rotary, Rotary::kFused);
  options.target = Target::kGenaiStatic;
  EXPECT_EQ(ResolvedOptions(options).read, ReadForm::kFull);
  EXPECT_EQ(ResolvedOptions(options).layout, Layout::kHeadsInLastAxis);
  EXPECT_EQ(ResolvedOptions(options).io_names, IoNames::kStatic);
  options.read = ReadForm::kPrefix;
  EXPECT_EQ(ResolvedOptions(options).read, ReadForm::kPrefix);
}

}  // namespace
}  // namespace kvlift
